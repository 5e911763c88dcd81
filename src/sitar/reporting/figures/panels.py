"""Draw panels of lines side by side: a mean over seeds, the single seeds around it, and levels to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sitar.reporting.figures.style import GREY
from sitar.reporting.figures.tiles import plain

TOP = 104  # of an axis in percent: what lies at 100 is seen
SMALL = 8.5  # points of what explains


@dataclass(frozen=True)
class Line:
    """A line shows at each place the values of all seeds that have one."""

    name: str  # empty: not named
    points: Mapping[float, Sequence[float]]
    color: str
    marker: str = "o"
    dashes: str = "-"

    @property
    def places(self) -> list[float]:
        return sorted(place for place, values in self.points.items() if values)

    @property
    def means(self) -> list[float]:
        return [mean(self.points[place]) for place in self.places]


@dataclass(frozen=True)
class Panel:
    """A panel shows lines over one axis.

    In a `dense` panel seeds are a band instead of points, and levels have no names: the panel before it has named them.
    """

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    ticks: Mapping[float, str] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    dense: bool = False
    legend: str = ""  # what the lines' names are values of, where that is not obvious


def panels_figure(panels: Sequence[Panel]) -> Figure:
    """Draw all panels on one scale of 0 to 100 percent. Lines are named below if the first panel has those of all."""
    figure = Figure(figsize=(max(6.4, 4.9 * len(panels)), 4.2), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr]
    plots = figure.subplots(1, len(panels), squeeze=False)[0]
    names = [[line.name for line in panel.lines if line.name] for panel in panels]
    shared = len(panels) > 1 and len(names[0]) > 1 and all(set(others) <= set(names[0]) for others in names)
    for plot, panel in zip(plots, panels, strict=True):
        _draw(plot, panel)
        if not shared and (len(panel.lines) > 1 or panel.legend):
            beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if panel.dense else {"loc": "best"}
            plot.legend(frameon=False, fontsize=SMALL, title=plain(panel.legend), title_fontsize=SMALL, **beside)
    if shared:
        handles, labels = plots[0].get_legend_handles_labels()
        columns = 4 if len(labels) > 4 else len(labels)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return figure


def _draw(plot: Axes, panel: Panel) -> None:
    for line in panel.lines:
        if line.places:
            _draw_line(plot, line, panel.dense)
    for name, level in panel.levels.items():
        plot.axhline(level, color=GREY, linewidth=1, linestyle="--", zorder=0)
        if not panel.dense:
            _name_level(plot, panel, plain(name), level)
    plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.ticks:
        plot.set_xticks(list(panel.ticks), list(panel.ticks.values()))
    plot.set(ylim=(-3, TOP), xlabel=plain(panel.xlabel), ylabel=plain(panel.ylabel))
    plot.set_title(plain(panel.title), fontsize=11)
    plot.spines[["top", "right"]].set_visible(False)


def _draw_line(plot: Axes, line: Line, dense: bool) -> None:
    places, color = line.places, line.color
    if dense:
        lows, highs = zip(*((min(line.points[place]), max(line.points[place])) for place in places), strict=True)
        plot.fill_between(places, lows, highs, color=color, alpha=0.13, linewidth=0)
    else:
        seeds = [(place, value) for place in places for value in line.points[place]]
        plot.scatter(*zip(*seeds, strict=True), s=11, color=color, marker=line.marker, alpha=0.4, linewidth=0)
    marker = "" if dense and len(places) > 1 else line.marker or "o"
    plot.plot(places, line.means, line.dashes, color=color, linewidth=1.7, marker=marker, markersize=5,
              label=plain(line.name) or "_unnamed")  # fmt: skip


def _name_level(plot: Axes, panel: Panel, name: str, level: float) -> None:
    """Write the name of a level above it, at that end where lines are farther away."""
    left, right = (_room(panel, level + 4, end) for end in (slice(2), slice(-2, None)))
    at, side = (0.01, "left") if left > right else (0.99, "right")
    plot.text(at, level + 1, name, color=GREY, fontsize=SMALL, ha=side, va="bottom",
              transform=plot.get_yaxis_transform())  # fmt: skip


def _room(panel: Panel, height: float, end: slice) -> float:
    """Return how far the nearest mean at one end is from this height."""
    return min((abs(value - height) for line in panel.lines for value in line.means[end]), default=0)
