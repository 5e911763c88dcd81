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
ANSWERS_NOTE = "+N answers: its last layer was fitted again, to N answers about images from where it will be used."


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
    """Return the value of a metric in expectation, for a head that knows nothing: a fair coin over the classes.

    It is None where a coin has no such value. The mean of the worst group of many coins is a little lower than that of
    each group, because it is a minimum; the accuracy of a coin in a given group is what is meant here.
    """
    of = metrics()[name].chance
    return None if of is None else of(classes)


def percent_range(interval: Sequence[float] | None) -> str:
    """Write an interval in percent, and a dash where there is none."""
    return "–" if interval is None else f"{100 * interval[0]:.1f}-{100 * interval[1]:.1f}"


def marked(table: Table, needs_groups: bool, answers: int = 0) -> Table:
    """Add a mark and a note to the table of a run that was given more: group labels, or answers about new images."""
    marks = [f"+{answers} answers"] if answers else []
    notes = [ANSWERS_NOTE] if answers else []
    if needs_groups:
        marks, notes = [*marks, UPPER_BOUND], [*notes, UPPER_BOUND_NOTE]
    return replace(table, title=" ".join([table.title, *marks]), note=" ".join([table.note, *notes]))
