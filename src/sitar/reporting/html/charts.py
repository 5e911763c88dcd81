"""Charts as plain numbers, which the report's template draws: curves over epochs, and bars with their ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from sitar.reporting.comparison import ComparedRun as Run
from sitar.reporting.comparison import Comparison

WIDTH, HEIGHT = 360, 220  # of a chart: text keeps its size on a phone, wide screens show several side by side
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 34
MOST_AXES = 8  # of which v is drawn, the largest at the end


@dataclass(frozen=True)
class Curve:
    label: str
    color: int
    points: str  # of an SVG polyline


@dataclass(frozen=True)
class Chart:
    title: str
    curves: list[Curve]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


@dataclass(frozen=True)
class Bar:
    """A value in [0, 1] with its range, None where the figure does not exist."""

    label: str
    color: int
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Bars:
    title: str
    detail: str
    bars: list[Bar]


def line_chart(
    title: str, series: Sequence[tuple[str, int, Sequence[tuple[float, float]]]], *, top: float | None = None
) -> Chart:
    """Curves (label, color, points) from zero to `top`, or to the largest value."""
    series = [(label, color, [p for p in points if _finite(p[1])]) for label, color, points in series]
    xs = [x for _, _, points in series for x, _ in points]
    ys = [y for _, _, points in series for _, y in points]
    last = max(xs, default=1)
    most = top if top is not None else (max(ys, default=1) or 1)
    least = min(0.0, min(ys, default=0.0))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - 1) / (last - 1) if last > 1 else 0.5
        return (
            round(LEFT + across * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - (y - least) / ((most - least) or 1) * (HEIGHT - TOP - BOTTOM), 1),
        )

    curves = [
        Curve(label, color, " ".join("{},{}".format(*place(x, y)) for x, y in points))
        for label, color, points in series
    ]
    return Chart(
        title,
        curves,
        [(place(x, 0)[0], f"{x:g}") for x in _ticks(1, last)],
        [(place(1, y)[1], f"{y:.3g}") for y in (least + share * (most - least) for share in (0, 0.25, 0.5, 0.75, 1))],
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _ticks(first: float, last: float) -> list[float]:
    """Whole numbers, about four of them."""
    step = max(1, math.ceil((last - first) / 4))
    return [first, *(x for x in range(step, math.floor(last) + 1, step) if x > first)]


def accuracy_curves(comparison: Comparison) -> list[Chart]:
    """A chart for each split that runs were evaluated on while they trained, a curve a run."""
    splits = dict.fromkeys(
        key for run in comparison.runs for line in run.metrics for key, value in line.items() if _has_average(value)
    )
    charts = []
    for split in splits:
        series = [(run.label, run.row, _curve(run, split)) for run in comparison.runs]
        charts.append(line_chart(f"Accuracy on {split}", [s for s in series if s[2]], top=1.0))
    return charts


def _has_average(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("average") is not None


def _curve(run: Run, split: str) -> list[tuple[float, float]]:
    """Of the last phase: in those before it another model may be the one that is evaluated."""
    last = run.metrics[-1].get("phase") if run.metrics else None
    return [
        (place, line[split]["average"])
        for place, line in enumerate(run.metrics, 1)
        if line.get("phase") == last and _has_average(line.get(split))
    ]


def loss_curves(run: Run) -> list[Chart]:
    """Every term of the loss of one run, a chart each."""
    terms = dict.fromkeys(
        key for line in run.metrics for key, value in line.items()
        if isinstance(value, float) and key not in ("seconds", "learning_rate")
    )  # fmt: skip
    return [
        line_chart(
            term.replace("_", " "),
            [(run.label, run.row, [(i, line[term]) for i, line in enumerate(run.metrics, 1) if term in line])],
        )
        for term in terms
    ]


def score_curves(run: Run) -> Chart | None:
    """v of the axes over epochs: those that are largest at the end."""
    lines = [
        (i, v) for i, line in enumerate(run.metrics, 1) if (v := line.get("shortcut_score")) and all(map(_finite, v))
    ]
    if not lines:
        return None
    last = lines[-1][1]
    lines = [(i, v) for i, v in lines if len(v) == len(last)]
    order = sorted(range(len(last)), key=lambda axis: -last[axis])[:MOST_AXES]
    series = [(f"axis {axis}", place, [(i, v[axis]) for i, v in lines]) for place, axis in enumerate(order)]
    title = f"{run.label}" + (f" (the {MOST_AXES} largest of {len(last)} axes)" if len(last) > MOST_AXES else "")
    return line_chart(title, series, top=1.0)


def split_bars(comparison: Comparison) -> list[Bars]:
    """Average and worst group on every test split."""
    found = []
    for split in comparison.splits:
        for metric, name in (("average", "average"), ("worst_group", "worst group")):
            bars = metric_bars(comparison, split, metric)
            if any(bar.value is not None for bar in bars):
                sizes = [
                    _size(run.result["splits"][split], metric)
                    for run in comparison.runs
                    if split in run.result["splits"]
                ]
                found.append(Bars(f"{split}, {name}", _samples([n for n in sizes if n is not None]), bars))
    return found


def _size(metrics: Mapping[str, Any], metric: str) -> int | None:
    """Of how many samples a figure is: the worst group's own, the larger of two that are equally bad."""
    if metric != "worst_group":
        return metrics["n"]
    cells = [cell for cell in (metrics.get("groups") or {}).values() if cell["accuracy"] is not None]
    return min(cells, key=lambda cell: (cell["accuracy"], -cell["n"]))["n"] if cells else None


def _samples(sizes: Sequence[int]) -> str:
    """Runs may be worst on different groups."""
    if not sizes:
        return ""
    least, most = min(sizes), max(sizes)
    return f"{most:,} samples" if least == most else f"{least:,} to {most:,} samples"


def group_bars(comparison: Comparison, split: str) -> list[Bars]:
    """One set of bars a group of a split, the one that the best row does worst on first."""
    groups = dict.fromkeys(
        name for run in comparison.runs for name in (run.result["splits"].get(split, {}).get("groups") or {})
    )
    found = []
    for group in groups:
        bars, size = [], 0
        for place, row in enumerate(comparison.rows):
            cells = [(result["splits"].get(split, {}).get("groups") or {}).get(group) for result in row.results]
            known = [cell for cell in cells if cell and cell["accuracy"] is not None]
            size = max([size, *(cell["n"] for cell in known)])
            bars.append(_bar(row.label, place, [(c["accuracy"], wilson(c["accuracy"], c["n"])) for c in known]))
        found.append(Bars(named_group(group, comparison.classes, comparison.attributes), f"{size:,} samples", bars))
    return sorted(found, key=lambda bars: max((bar.value for bar in bars.bars if bar.value is not None), default=2.0))


def named_group(group: str, classes: Sequence[str], attributes: Mapping[str, Sequence[str]]) -> str:
    """`label=1,place=0` with the names of class and value, as far as they are known."""
    label, _, rest = group.partition(",")
    name = _named(label.removeprefix("label="), classes) or label
    attribute, _, place = rest.rpartition("=")
    value = _named(place, attributes.get(attribute, ())) or place
    said = value if attribute in value else f"{attribute} {value}"  # such as not Male
    return f"{name}, {said}" if rest else name


def _named(place: str, names: Sequence[str]) -> str | None:
    return names[int(place)] if place.isdecimal() and int(place) < len(names) else None


def metric_bars(comparison: Comparison, split: str, metric: str) -> list[Bar]:
    """One bar a row: a figure of result.json on one split."""
    bars = []
    for place, row in enumerate(comparison.rows):
        found = [result["splits"].get(split, {}) for result in row.results]
        bars.append(
            _bar(row.label, place, [(m[metric], _interval(m, metric)) for m in found if m.get(metric) is not None])
        )
    return bars


def _interval(metrics: Mapping[str, Any], metric: str) -> Sequence[float] | None:
    """By the bootstrap; Wilson's where all resamples are the same, as they are at 0 and 100 %."""
    found, n = (metrics.get("intervals") or {}).get(metric), _size(metrics, metric)
    return wilson(metrics[metric], n) if found and found[0] == found[1] and n else found


def _bar(label: str, color: int, known: Sequence[tuple[float, Sequence[float] | None]]) -> Bar:
    """Of one run with its interval; of several the mean, from the lowest to the highest."""
    if not known:
        return Bar(label, color, None)
    values = [value for value, _ in known]
    if len(values) > 1:
        return Bar(label, color, mean(values), min(values), max(values))
    low, high = known[0][1] or (None, None)
    return Bar(label, color, values[0], low, high)


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share of n samples, 95 %."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
