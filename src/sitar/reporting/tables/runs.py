"""Make the table that compares runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sitar.registry import metrics
from sitar.reporting.comparison import Row
from sitar.reporting.tables.table import ANSWERS_NOTE, HEADLINE, UPPER_BOUND, UPPER_BOUND_NOTE, Table, percent
from sitar.splits import TEST_SPLITS


def compare_table(rows: Sequence[Row], names: Sequence[str] = HEADLINE) -> Table:
    """Show mean and deviation over seeds on every test split, one line for each row of runs."""
    splits = [s for s in TEST_SPLITS if any(s in result["splits"] for row in rows for result in row.results)]
    columns = ["runs", "seeds", *(f"{split} {metrics()[name].short}" for split in splits for name in names)]
    lines = []
    for row in rows:
        cells = [row.summary(split, name) for split in splits for name in names]
        label = f"{row.label} {UPPER_BOUND}" if row.needs_groups else row.label
        lines.append([label, ",".join(map(str, row.seeds)), *map(_mean_and_std, cells)])
    datasets = sorted({result["dataset"] for row in rows for result in row.results})
    selections = sorted({result["selection"] for row in rows for result in row.results})
    note = (
        f"Percent, mean ± standard deviation over seeds. Data: {', '.join(datasets)}. Epoch: {', '.join(selections)}."
    )
    if any(row.needs_groups for row in rows):
        note += f" {UPPER_BOUND_NOTE}"
    if any(row.answers for row in rows):
        note += f" {ANSWERS_NOTE}"
    return Table("Comparison", columns, lines, note)


def _mean_and_std(summary: Mapping[str, Any]) -> str:
    text = percent(summary["mean"])
    return text if summary["std"] is None else f"{text} ± {100 * summary['std']:.1f}"
