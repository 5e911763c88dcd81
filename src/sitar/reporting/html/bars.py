"""Compute bars with their ranges as plain numbers, which a template draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from sitar.evaluation.metrics import wilson
from sitar.reporting.comparison import Comparison
from sitar.reporting.tables.table import KNOWLEDGE


@dataclass(frozen=True)
class Bar:
    """A bar is a value in [0, 1] with its range. Each is None where the figure does not exist."""

    label: str
    color: int
    value: float | None
    low: float | None = None
    high: float | None = None
    over_seeds: bool = False  # whether the range goes from the lowest seed to the highest, and is no interval


@dataclass(frozen=True)
class Bars:
    """These bars stand together below a title."""

    title: str
    detail: str
    bars: list[Bar]
    chance: float | None = None  # a line across the bars: what knowing nothing gives


def metric_bars(comparison: Comparison, split: str, metric: str) -> list[Bar]:
    """Return one bar for each row: a metric of result.json on one split."""
    bars = []
    for place, row in enumerate(comparison.rows):
        metrics = [result["splits"].get(split, {}) for result in row.results]
        known = [(m[metric], interval_of(m, metric)) for m in metrics if m.get(metric) is not None]
        bars.append(mean_bar(row.label, place, known))
    return bars


def mean_bar(label: str, color: int, known: Sequence[tuple[float, Sequence[float] | None]]) -> Bar:
    """Return the bar of one run with its interval. Of several runs it is the mean, from the lowest to the highest."""
    if not known:
        return Bar(label, color, None)
    values = [value for value, _ in known]
    if len(values) > 1:
        return Bar(label, color, mean(values), min(values), max(values), over_seeds=True)
    low, high = known[0][1] or (None, None)
    return Bar(label, color, values[0], low, high)


def interval_of(metrics: Mapping[str, Any], metric: str) -> Sequence[float] | None:
    """Return the interval of result.json. Wilson's stands for one without a width, which earlier releases wrote."""
    interval, n = (metrics.get("intervals") or {}).get(metric), sample_count(metrics, metric)
    return wilson(metrics[metric], n) if interval and interval[0] == interval[1] and n else interval


def sample_count(metrics: Mapping[str, Any], metric: str) -> int | None:
    """Return on how many samples a metric is computed. Of two groups that are equally bad the larger one counts.

    An AUC counts pairs of samples, and so has no such number.
    """
    if metric in KNOWLEDGE:
        return None
    if metric != "worst_group":
        return metrics["n"]
    cells = [cell for cell in (metrics.get("groups") or {}).values() if cell["accuracy"] is not None]
    return min(cells, key=lambda cell: (cell["accuracy"], -cell["n"]))["n"] if cells else None
