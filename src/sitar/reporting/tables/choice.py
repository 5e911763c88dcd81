"""Make the table of `sitar choose`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.reporting.tables.table import Table, percent, percent_range


def choice_table(choice: Mapping[str, Any]) -> Table:
    """Show what the answers say of each candidate, the most probable one first."""
    standings = sorted(choice["standings"], key=lambda standing: (-standing["best"], -standing["accuracy"]))
    rows = [
        [
            standing["label"] + (" *" if standing == choice["chosen"] else ""),
            percent(standing["accuracy"]), percent_range(standing["interval"]), percent(standing["best"]),
            standing["run"],
        ]
        for standing in standings
    ]  # fmt: skip
    note = (
        f"By {choice['answers']:,} answers, for all {choice['images']:,} images, with 95 % intervals. The candidates "
        f"disagree on {percent(choice['disagreement'])} % of them. * is chosen."
    )
    return Table("Candidates", ["candidate", "accuracy", "interval", "best with probability", "run"], rows, note)
