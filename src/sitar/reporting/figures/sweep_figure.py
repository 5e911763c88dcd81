"""Draw a sweep: lines over one setting, heat maps over two, and the points of a search one setting at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from sitar.registry import metrics
from sitar.reporting.figures.style import BLUE, GREY, INK, ORANGE
from sitar.reporting.figures.tiles import plain
from sitar.reporting.tables.sweep import chooser, shown_columns, written
from sitar.splits import CHOOSING_SPLITS, VAL, VAL_OOD, deciding_split

SMALL = 8.5  # points of what explains
WIDE = 50.0  # times the smallest value, above which an axis is logarithmic
COLORS = {VAL: GREY, VAL_OOD: GREY, "id_test": BLUE, "ood_test": ORANGE, "test": ORANGE}
Points = Sequence[Mapping[str, Any]]


def sweep_figure(record: Mapping[str, Any]) -> Figure | None:
    """Return the figure of a sweep. There is none where nothing was varied, or no run is finished."""
    keys = list(record["over"])
    points = [point for point in record["points"] if point["seeds"]]
    if not keys or not points:
        return None
    if record["search"] is None and len(keys) == 1:
        return _lines(record, points, keys[0])
    if record["search"] is None and len(keys) == 2:
        return _heat_maps(record, points, keys)
    return _slices(record, points, keys)


def _lines(record: Mapping[str, Any], points: Points, key: str) -> Figure:
    """Draw means over one setting, with a band of one standard deviation over seeds."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    plot = figure.subplots()
    places = _places(plot, points, key)
    ordinal = not _are_numbers(point["values"][key] for point in points)
    ordered = sorted(points, key=lambda point: places[point["name"]])
    for split, name in _series(record):
        found = [(places[point["name"]], summary) for point in ordered if (summary := _summary(point, split, name))]
        xs, means = [x for x, _ in found], [100 * summary["mean"] for _, summary in found]
        spread = [100 * (summary["std"] or 0) for _, summary in found]
        color, dashes = COLORS.get(split, INK), "--" if split in CHOOSING_SPLITS else ":" if name != "average" else "-"
        label = _title(split, name)
        if ordinal:
            plot.errorbar(
                xs,
                means,
                spread,
                fmt="o" if name == "average" else "D",
                markersize=5,
                capsize=4,
                color=color,
                label=label,
            )
        else:
            low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
            plot.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
            plot.plot(xs, means, dashes, marker="o", markersize=4.5, linewidth=1.7, color=color, label=label)
    _mark_line(plot, record, places)
    plot.set(xlabel=plain(key), ylabel="percent")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=SMALL)
    figure.suptitle(plain(f"{record['preset']}: mean ± standard deviation over seeds"), fontsize=11)
    plot.spines[["top", "right"]].set_visible(False)
    return figure


def _heat_maps(record: Mapping[str, Any], points: Points, keys: Sequence[str]) -> Figure:
    """Draw two settings against each other: a map of what chooses, and a map of each figure that judges."""
    xs, ys = (_ordered(points, key) for key in keys)

    def place(point: Mapping[str, Any]) -> tuple[int, int]:
        return xs.index(written(point["values"][keys[0]])), ys.index(written(point["values"][keys[1]]))

    series = _series(record)
    wide = max(3.2, 0.85 * len(xs) + 1.3)
    lines = -(-len(series) // 2)
    figure = Figure(figsize=(2 * wide, lines * max(2.4, 0.6 * len(ys) + 1.2) + 0.4), layout="constrained")
    plots = figure.subplots(lines, 2, squeeze=False).ravel()
    for plot in plots[len(series) :]:
        plot.remove()
    for plot, (split, name) in zip(plots, series, strict=False):
        grid = np.full((len(ys), len(xs)), np.nan)
        for point in points:
            x, y = place(point)
            if summary := _summary(point, split, name):
                grid[y, x] = 100 * summary["mean"]
            if point["name"] == record["chosen"]:
                plot.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2, zorder=3))
        shown = plot.imshow(grid, cmap="Greys" if split in CHOOSING_SPLITS else "Blues", aspect="auto", origin="lower")
        for (y, x), value in np.ndenumerate(grid):
            if not np.isnan(value):
                color = "white" if value > (np.nanmin(grid) + np.nanmax(grid)) / 2 else INK
                plot.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=SMALL, color=color)
        plot.set_xticks(range(len(xs)), map(plain, xs))
        plot.set_yticks(range(len(ys)), map(plain, ys))
        plot.set(xlabel=plain(keys[0]), ylabel=plain(keys[1]))
        plot.set_title(_title(split, name), fontsize=10)
        plot.spines[:].set_visible(False)
        plot.tick_params(length=0)
        figure.colorbar(shown, ax=plot, shrink=0.85).ax.tick_params(labelsize=SMALL)
    figure.suptitle(
        plain(f"{record['preset']}: percent, mean over seeds; the frame is chosen by {chooser(record)}"), fontsize=11
    )
    return figure


def _slices(record: Mapping[str, Any], points: Points, keys: Sequence[str]) -> Figure:
    """Draw what chooses and what judges against each setting in turn: a pair of dots for each point."""
    figure = Figure(figsize=(max(6.4, 3.6 * len(keys)), 4.0), layout="constrained")
    plots = figure.subplots(1, len(keys), squeeze=False, sharey=True)[0]
    for plot, key in zip(plots, keys, strict=True):
        places = _places(plot, points, key)
        for split, name in _series(record):
            found = [(places[point["name"]], summary) for point in points if (summary := _summary(point, split, name))]
            marker = "o" if split not in CHOOSING_SPLITS else "s" if name == "average" else "D"
            is_full = name == "average" or split in CHOOSING_SPLITS
            filled = {} if is_full else {"facecolors": "none", "edgecolors": COLORS[split]}
            plot.scatter(
                [x for x, _ in found], [100 * summary["mean"] for _, summary in found], s=26, marker=marker, alpha=0.75,
                color=None if filled else COLORS.get(split, INK), label=_title(split, name), **filled,
            )  # fmt: skip
        _mark_line(plot, record, places)
        plot.set(xlabel=plain(key))
        plot.spines[["top", "right"]].set_visible(False)
    plots[0].set_ylabel("percent, mean over seeds")
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=SMALL)
    figure.suptitle(plain(f"{record['preset']}: {len(points)} points"), fontsize=11)
    return figure


def _series(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is drawn: the metric of the rule, the average of each test split, the worst group of the last."""
    shown = shown_columns(record)
    judged = deciding_split(split for split, _ in shown)
    return [(split, name) for split, name in shown if split in (*CHOOSING_SPLITS, judged) or name == "average"]


def _summary(point: Mapping[str, Any], split: str, name: str) -> Mapping[str, Any] | None:
    return point["splits"].get(split, {}).get(name)


def _title(split: str, name: str) -> str:
    return f"{split} {metrics()[name].title}"


def _places(plot: Axes, points: Points, key: str) -> dict[str, float]:
    """Return where each point stands on the axis of a setting: numbers where they belong, others at equal distances."""
    values = {point["name"]: point["values"][key] for point in points}
    if _are_numbers(values.values()):
        distinct = sorted(set(values.values()))
        if distinct[0] > 0 and distinct[-1] / distinct[0] >= WIDE:
            plot.set_xscale("log")
        elif len(positive := [value for value in distinct if value > 0]) > 1 and positive[-1] / positive[0] >= WIDE:
            plot.set_xscale("symlog", linthresh=positive[0])
        if len(distinct) <= 8:
            plot.set_xticks(distinct, [written(value) for value in distinct])
            plot.set_xticks([], minor=True)
        elif all(isinstance(value, int) for value in distinct) and plot.get_xscale() == "linear":
            plot.xaxis.set_major_locator(MaxNLocator(integer=True))
        return {name: float(value) for name, value in values.items()}
    order = list(dict.fromkeys(written(value) for value in values.values()))
    plot.set_xticks(range(len(order)), [plain(text) for text in order])
    plot.set_xlim(-0.5, len(order) - 0.5)
    return {name: float(order.index(written(value))) for name, value in values.items()}


def _mark_line(plot: Axes, record: Mapping[str, Any], places: Mapping[str, float]) -> None:
    if record["chosen"] in places:
        plot.axvline(places[record["chosen"]], color=INK, linewidth=1, linestyle=":", zorder=0)
        plot.annotate("chosen", (places[record["chosen"]], 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
                      textcoords="offset points", ha="center", va="bottom", fontsize=SMALL, color=INK)  # fmt: skip


def _ordered(points: Points, key: str) -> list[str]:
    """Return the values of a setting as text: numbers from low to high, others as they were given."""
    values = {written(value): value for value in (point["values"][key] for point in points)}
    return sorted(values, key=values.__getitem__) if _are_numbers(values.values()) else list(values)


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
