"""Make the table of what accuracy to expect of a last layer that was fitted again, where its images come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.reporting.tables.table import Table, percent, percent_range
from sitar.run_folder import Result


def expected_table(result: Result) -> Table:
    """Show the expected accuracy after the fit, and that of every candidate before it."""
    refit = result.get("refit", {})
    lines = [_line(f"refitted: {refit['features']} of {refit['run']}", refit["expected"])]
    lines += [_line(candidate["run"], candidate) for candidate in refit["before"]]
    drawn = "Answers are weighted, so that they stand for all images." if refit["weighted"] else ""
    note = (
        f"Percent, from {result.get('answers', 0)} answers. That of the new layer is cross-validated: each answer is "
        f"predicted by a fit without it. {drawn}"
    )
    best = max(candidate["accuracy"] for candidate in refit["before"])
    if refit["expected"]["accuracy"] <= best:
        note = f"{note.rstrip()} The new layer is not better than the best candidate: keep that one, or answer more."
    return Table(
        "Expected accuracy where the images come from", ["model", "accuracy", "95 % range"], lines, note.rstrip()
    )


def _line(name: str, expected: Mapping[str, Any]) -> list[str]:
    return [name, percent(expected["accuracy"]), percent_range(expected["interval"])]
