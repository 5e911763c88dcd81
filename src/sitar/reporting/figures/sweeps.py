"""Show accuracy against a setting and over epochs: the runs of a table's record become the panels of a figure.

How a table is drawn is data, the `figure` of its .yaml file:
  name, title, shows    what it is called, and what a reader sees
  panels                NAME: title of the split's panel, where several rows have a panel for each split
  setting, label        the setting that differs between columns, and its name on the axis
  splits                NAME: split, a panel for each; with one row the lines of one panel
  rows                  row: its name in the figure (default: all rows as they are called)
  levels                NAME: number, or {mean: [table, row, column], split}: what to compare with
  scale                 linear: values stand where they belong (default: at equal distances, which the axis says)
  curves_at             the column of which rows are shown over epochs (with one row: all columns are)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.colors import LinearSegmentedColormap, to_hex

from sitar.reporting.figures.panels import Line, Panel
from sitar.reporting.figures.style import BLUE, GREY, INK, ORANGE

Run = Mapping[str, Any]
RAMP = LinearSegmentedColormap.from_list("values", [ORANGE, "#b8897a", "#8285a8", BLUE, "#1a3561"])
STYLES = ((BLUE, "o", "-"), (ORANGE, "s", "-"), (GREY, "^", "-"), (INK, "D", "--"), (GREY, "v", ":"), (INK, "P", "-."))
SPLITS = {"id_test": (BLUE, "s"), "ood_test": (ORANGE, "o")}  # as in the figure of the demo


def settings_of(columns: Mapping[str, Sequence[str]], setting: str) -> dict[str, float]:
    """Return the value that each column gives to the setting, lowest first."""
    values = {
        column: float(text.partition("=")[2])
        for column, settings in columns.items()
        for text in settings
        if text.partition("=")[0] == setting
    }
    return dict(sorted(values.items(), key=lambda item: item[1]))


def sweep_panels(
    described: Mapping[str, Any],
    columns: Mapping[str, Sequence[str]],
    rows: Mapping[str, Sequence[Run]],
    levels: Mapping[str, Mapping[str, float]],
) -> list[Panel]:
    """Return the panels of the last epoch, then those over epochs. `levels` are by split."""
    values = settings_of(columns, described["setting"])
    rows = {name: runs for name, runs in rows.items() if runs}
    parts = _by_split if len(rows) == 1 else _by_row
    return [*parts(described, values, rows, levels), *_over_epochs(described, values, rows, levels)]


def _by_split(described: Any, values: Mapping[str, float], rows: Any, levels: Any) -> list[Panel]:
    """Return the panel of one row. Its lines are the splits."""
    (runs,) = rows.values()
    places, ticks, label = _axis(described, values)
    lines = []
    for name, split in described["splits"].items():
        color, marker = SPLITS.get(split, (BLUE, "o"))
        lines.append(Line(name, _against(runs, split, places), color, marker))
    both = {name: level for split in described["splits"].values() for name, level in levels[split].items()}
    only = " and ".join(described["splits"])
    return [Panel(described["title"], label, f"{only} accuracy (%)", lines, ticks, both)]


def _by_row(described: Any, values: Mapping[str, float], rows: Any, levels: Any) -> list[Panel]:
    """Return the panels of several rows, one for each split. The rows are the lines."""
    places, ticks, label = _axis(described, values)
    panels = []
    for name, split in described["splits"].items():
        lines = [Line(row, _against(runs, split, places), *style) for row, runs, style in _styled(rows)]
        title = described.get("panels", {}).get(name, described["title"])
        panels.append(Panel(title, label, f"{name} accuracy (%)", lines, ticks, levels[split]))
    return panels


def _over_epochs(described: Any, values: Mapping[str, float], rows: Any, levels: Any) -> list[Panel]:
    """Return a panel of what the runs have recorded after each epoch: of each column, or of each row at one of them."""
    if len(rows) == 1:
        (runs,) = rows.values()
        picked = [(f"{value:g}", runs, column, (color, "", "-")) for (column, value), color in _ramp(values)]
        title, legend = "while training", described["label"].partition(",")[0]
    elif at := described.get("curves_at"):
        picked = [(row, runs, at, style) for row, runs, style in _styled(rows)]
        title, legend = f"while training, {at}", ""
    else:
        return []
    lines = []
    for i, split in enumerate(described["splits"].values()):
        for name, runs, column, (color, _, dashes) in picked:
            points = _epochs(runs, split, column)
            lines += [Line("" if i else name, points, color, "", ":" if i else dashes)] if points else []
    names = list(described["splits"])
    title = f"{names[0]} {title}" if len(names) == 1 else f"{names[0]} and (dotted) {', '.join(names[1:])} {title}"
    first = levels[next(iter(described["splits"].values()))]
    panel = Panel(title, "epoch", f"{' and '.join(names)} accuracy (%)", lines, {}, first, dense=True, legend=legend)
    return [panel] if lines else []


def _styled(rows: Mapping[str, Sequence[Run]]) -> Iterable[tuple[str, Sequence[Run], tuple[str, str, str]]]:
    for i, (row, runs) in enumerate(rows.items()):
        yield row, runs, STYLES[i % len(STYLES)]


def _axis(described: Any, values: Mapping[str, float]) -> tuple[dict[str, float], dict[float, str], str]:
    """Return where each column stands, the ticks, and the name of the axis."""
    linear = described.get("scale") == "linear"
    places = {column: value if linear else float(i) for i, (column, value) in enumerate(values.items())}
    ticks = {place: f"{values[column]:g}" for column, place in places.items()}
    return places, ticks, described["label"] if linear else f"{described['label']} (at equal distances)"


def _against(runs: Sequence[Run], split: str, places: Mapping[str, float]) -> dict[float, list[float]]:
    """Return the averages at the place of each column, one for each run."""
    points: dict[float, list[float]] = {}
    for run in runs:
        if run["column"] in places:
            points.setdefault(places[run["column"]], []).append(100 * run["splits"][split]["average"])
    return points


def _epochs(runs: Sequence[Run], split: str, column: str | None) -> dict[float, list[float]]:
    """Return the averages after each epoch, of the runs of a column that have curves."""
    points: dict[float, list[float]] = {}
    for run in runs:
        curves = run.get("curves", {})
        if run["column"] == column and split in curves:
            for epoch, value in zip(curves["epoch"], curves[split], strict=True):
                points.setdefault(epoch, []).append(100 * value)
    return points


def _ramp(values: Mapping[str, float]) -> Iterable[tuple[tuple[str, float], str]]:
    """Give each column a colour of an order, from orange to blue and from light to dark."""
    last = max(1, len(values) - 1)
    return ((item, to_hex(RAMP(i / last))) for i, item in enumerate(values.items()))
