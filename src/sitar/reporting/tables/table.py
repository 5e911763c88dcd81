"""A table has column names and rows of text. Fractions become percent here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sitar.registry import metrics

HEADLINE = ("average", "worst_group")  # the metrics that every table shows
KNOWLEDGE = ("core_auc", "shortcut_auc")  # what predictions know and follow, shown where groups exist
CHANCE = "knows nothing (chance)"  # the row of a head that guesses: a fair coin over the classes
UPPER_BOUND = "†"
UPPER_BOUND_NOTE = f"{UPPER_BOUND} was given group labels of the training samples: an upper bound."


@dataclass(frozen=True)
class Table:
    """A table holds text, with a note below it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def percent(value: float | None) -> str:
    """Write 70.1 for 0.701, and a dash where a figure does not exist."""
    return "–" if value is None else f"{100 * value:.1f}"


def chance(name: str, classes: int) -> float | None:
    """Return the value of a metric in expectation, for a head that knows nothing: a fair coin over the classes.

    It is None where a coin has no such value. The mean of the worst group of many coins is a little lower than that of
    each group, because it is a minimum; the accuracy of a coin in a given group is what is meant here.
    """
    of = metrics()[name].chance
    return None if of is None else of(classes)


def percent_range(interval: Sequence[float] | None) -> str:
    """Write an interval in percent, and a dash where there is none."""
    return "–" if interval is None else f"{100 * interval[0]:.1f}-{100 * interval[1]:.1f}"


def marked(table: Table, needs_groups: bool) -> Table:
    """Add a mark and a note to the table of a run whose method was given group labels."""
    if not needs_groups:
        return table
    return replace(table, title=f"{table.title} {UPPER_BOUND}", note=f"{table.note} {UPPER_BOUND_NOTE}")
