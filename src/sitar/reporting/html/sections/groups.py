"""Show the accuracy of every group."""

from __future__ import annotations

from typing import Any

from sitar.reporting.comparison import Comparison
from sitar.reporting.groups import named_group
from sitar.reporting.html.bars import Bars, mean_bar, wilson
from sitar.wording import counted


def make(comparison: Comparison, sharing: int) -> dict[str, Any] | None:
    splits = [(split, bars) for split in reversed(comparison.splits) if (bars := group_bars(comparison, split))]
    return {"splits": splits} if splits else None


def group_bars(comparison: Comparison, split: str) -> list[Bars]:
    """Return one set of bars for each group of a split, the one that the best row does worst on first."""
    groups = dict.fromkeys(
        name for run in comparison.runs for name in (run.result["splits"].get(split, {}).get("groups") or {})
    )
    drawn = []
    for group in groups:
        bars, size = [], 0
        for place, row in enumerate(comparison.rows):
            cells = [(result["splits"].get(split, {}).get("groups") or {}).get(group) for result in row.results]
            known = [(accuracy, cell["n"]) for cell in cells if cell and (accuracy := cell["accuracy"]) is not None]
            size = max([size, *(n for _, n in known)])
            bars.append(mean_bar(row.label, place, [(accuracy, wilson(accuracy, n)) for accuracy, n in known]))
        drawn.append(Bars(named_group(group, comparison.classes, comparison.attributes), counted(size, "sample"), bars))
    return sorted(drawn, key=lambda bars: max((bar.value for bar in bars.bars if bar.value is not None), default=2.0))
