"""Show average and worst group on every test split, and what the predictions know and follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sitar.registry import metrics
from sitar.reporting.comparison import Comparison
from sitar.reporting.html.bars import Bars, metric_bars, sample_count
from sitar.reporting.tables.table import HEADLINE, KNOWLEDGE, chance
from sitar.wording import counted


def make(comparison: Comparison, sharing: int) -> dict[str, Any]:
    bars = split_bars(comparison)
    knowledge = any(metrics()[name].title in shown.title for shown in bars for name in KNOWLEDGE)
    return {
        "rows": [row.label for row in comparison.rows],
        "bars": bars,
        "chance": any(shown.chance is not None for shown in bars),
        "knowledge": knowledge,
    }


def split_bars(comparison: Comparison) -> list[Bars]:
    """Return bars of the metrics that tables show, on every test split, where a run has them.

    Where a split has groups, the bars know the line of chance.
    """
    drawn = []
    for split in comparison.splits:
        groups = any(run.result["splits"].get(split, {}).get("groups") for run in comparison.runs)
        for metric in (*HEADLINE, *KNOWLEDGE):
            bars = metric_bars(comparison, split, metric)
            if any(bar.value is not None for bar in bars):
                results = [run.result["splits"] for run in comparison.runs]
                counts = [sample_count(splits[split], metric) for splits in results if split in splits]
                detail = _samples([count for count in counts if count is not None])
                level = chance(metric, len(comparison.classes)) if groups and comparison.classes else None
                drawn.append(Bars(f"{split}, {metrics()[metric].title}", detail, bars, level))
    return drawn


def _samples(counts: Sequence[int]) -> str:
    """Say how many samples there are. Runs may be worst on groups of different sizes."""
    if not counts:
        return ""
    least, most = min(counts), max(counts)
    return counted(most, "sample") if least == most else f"{least:,} to {most:,} samples"
