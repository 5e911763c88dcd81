"""A table has column names and rows of text. Fractions become percent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sitar import given
from sitar.registry import metrics

HEADLINE = ("average", "worst_group")  # the metrics that every table shows
KNOWLEDGE = ("core_auc", "shortcut_auc")  # what predictions know and follow, shown where groups exist
CHANCE = "knows nothing (chance)"  # the row of a classifier that guesses: a fair coin over the classes


@dataclass(frozen=True)
class Table:
    """A table holds text, with a note below it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    bold: frozenset[tuple[int, int]] = frozenset()  # row and column, where a form of output can show it

    def is_numeric(self, column: int) -> bool:
        """Return whether a column holds numbers and dashes only, and so is aligned to the right."""
        values = [row[column] for row in self.rows]
        return all(value.lstrip("-")[:1].isdigit() or value == "–" for value in values)


def percent(value: float | None) -> str:
    """Write 70.1 for 0.701, and a dash where a figure does not exist."""
    return "–" if value is None else f"{100 * value:.1f}"


def chance(name: str, classes: int) -> float | None:
    """Return the value of a metric in expectation, for a classifier that knows nothing: a fair coin over the classes.

    It is None where a coin has no such value. The mean of the worst group of many coins is a little lower than that of
    each group, because it is a minimum; the accuracy of a coin in a given group is what is meant here.
    """
    of = metrics()[name].chance
    return None if of is None else of(classes)


def percent_range(interval: Sequence[float] | None) -> str:
    """Write an interval in percent, and a dash where there is none."""
    return "–" if interval is None else f"{100 * interval[0]:.1f}-{100 * interval[1]:.1f}"


def marked(table: Table, result: Mapping[str, Any]) -> Table:
    """Add marks and notes to the table of a run that was given more than inputs and labels."""
    note = " ".join([table.note, *given.notes([result])])
    return replace(table, title=given.marked(table.title, result), note=note)
