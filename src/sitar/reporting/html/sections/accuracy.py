"""Show average and worst group on every test split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sitar.reporting.comparison import Comparison
from sitar.reporting.html.bars import Bars, metric_bars, sample_count


def make(comparison: Comparison, sharing: int) -> dict[str, Any]:
    return {"rows": [row.label for row in comparison.rows], "bars": split_bars(comparison)}


def split_bars(comparison: Comparison) -> list[Bars]:
    """Return bars of average and worst group on every test split, where a run has them."""
    drawn = []
    for split in comparison.splits:
        for metric, name in (("average", "average"), ("worst_group", "worst group")):
            bars = metric_bars(comparison, split, metric)
            if any(bar.value is not None for bar in bars):
                results = [run.result["splits"] for run in comparison.runs]
                counts = [sample_count(splits[split], metric) for splits in results if split in splits]
                detail = _samples([count for count in counts if count is not None])
                drawn.append(Bars(f"{split}, {name}", detail, bars))
    return drawn


def _samples(counts: Sequence[int]) -> str:
    """Say how many samples there are. Runs may be worst on groups of different sizes."""
    if not counts:
        return ""
    least, most = min(counts), max(counts)
    return f"{most:,} samples" if least == most else f"{least:,} to {most:,} samples"
