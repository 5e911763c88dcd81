"""Draw where runs look at the same images: Grad-CAM maps, and the share of their mass inside a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sitar.errors import RunError
from sitar.reporting.comparison import name_of
from sitar.reporting.figures.style import BLUE, GREY, INK, ORANGE
from sitar.reporting.figures.tiles import GAP, fractions, short, tile
from sitar.reporting.pixels import rgb, under_map
from sitar.run_folder import RunFolder

MOST = 8  # images that are shown
TILE = 1.0  # inches of an image
LETTER = 0.075  # of a letter in the name of a run
NAME = 14  # letters of a class that have room below an image
WORDS = 30  # letters of a preset's name that have room
BARS = 1.9  # of the panel of shares
HEAD, FOOT = 0.4, 0.6
COLORS = (ORANGE, BLUE, GREY, INK)  # one a preset


@dataclass(frozen=True)
class GradCAMMaps:
    """One run looks at `images` (n, channel, height, width) with `maps` (n, height, width) in [0, 1]."""

    name: str
    images: NDArray[np.uint8]
    maps: NDArray[np.float32]
    index: NDArray[np.int64]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    share: float | None
    samples: int
    box: list[float] | None
    classes: list[str]  # names, where the run has kept them


def read_gradcam(folder: RunFolder) -> GradCAMMaps:
    """Read the maps that `sitar explain` has left in a run folder."""
    explanation, arrays = folder.part("gradcam")
    gradcam = explanation["gradcam"]
    return GradCAMMaps(
        name=name_of(explanation),
        images=arrays["images"],
        maps=arrays["maps"],
        index=arrays["index"],
        labels=arrays["labels"],
        predicted=arrays["predicted"],
        share=gradcam["mass_in_box"],
        samples=gradcam["n"],
        box=gradcam["box"],
        classes=(folder.result().get("classes") or []) if folder.is_done else [],
    )


def gradcam_figure(runs: Sequence[GradCAMMaps]) -> Figure:
    """Draw a row of images, a row of maps for each run, and beside them how much of each lies in the box."""
    common = [i for i in runs[0].index if all(i in run.index for run in runs)][:MOST]
    if not common:
        raise RunError("These runs have no image of Grad-CAM in common. Explain runs of the same data and split.")
    measured = any(run.share is not None for run in runs)
    longest = max(len(line) for run in runs for line in _lines(run).split("\n"))
    left, wide, high = 0.3 + LETTER * longest, TILE * len(common), TILE * (1 + len(runs))
    figure = Figure(figsize=(max(4.5, left + wide + (BARS if measured else 0.2)), HEAD + high + FOOT))
    plot = figure.add_axes(fractions((left, HEAD, wide, high), figure))
    _maps(plot, runs, common)
    if measured:
        size = (left + wide + 0.15, HEAD + TILE, BARS - 0.45, TILE * len(runs))
        _shares(figure.add_axes(fractions(size, figure)), runs)
    return figure


def _maps(plot: Axes, runs: Sequence[GradCAMMaps], common: Sequence[int]) -> None:
    for column, index in enumerate(common):
        first = runs[0]
        at = int(np.flatnonzero(first.index == index)[0])
        tile(plot, rgb(first.images[at]), 0, column)
        for row, run in enumerate(runs, 1):
            at = int(np.flatnonzero(run.index == index)[0])
            tile(plot, rgb(under_map(run.images[at], run.maps[at])), row, column)
            if run.box is not None:
                plot.add_patch(_box(run.box, row, column))
            if run.predicted[at] != run.labels[at]:
                plot.text(column + 0.93, row + 0.1, "×", color="white", fontsize=11, ha="right", va="center",
                          fontweight="bold", bbox={"color": "#b3261e", "pad": 0.6})  # fmt: skip
    labels = [int(runs[0].labels[np.flatnonzero(runs[0].index == index)[0]]) for index in common]
    names = runs[0].classes
    classes = [short(names[label], NAME) if label < len(names) else f"class {label}" for label in labels]
    plot.set(xlim=(0, len(common)), ylim=(1 + len(runs), 0))
    plot.set_yticks([i + 0.5 for i in range(1 + len(runs))], ["image", *map(_lines, runs)])
    plot.set_xticks([j + 0.5 for j in range(len(common))], classes)
    plot.tick_params(length=0, labelsize=8.5)
    plot.spines[:].set_visible(False)
    plot.set_title("Where each run looks (orange)", fontsize=11, loc="left")
    boxed = "dashed: the box;  " if any(run.box is not None for run in runs) else ""
    plot.set_xlabel(f"{boxed}×: predicted wrong", fontsize=8.5, color=GREY, loc="left")


def _box(box: Sequence[float], row: int, column: int) -> Rectangle:
    """Return a box, given in fractions of the image, at its place in the grid."""
    x0, y0, x1, y1 = ((1 - GAP) * end for end in box)
    corner = (column + GAP / 2 + x0, row + GAP / 2 + y0)
    return Rectangle(corner, x1 - x0, y1 - y0, fill=False, color="white", linestyle="--", linewidth=1)


def _shares(plot: Axes, runs: Sequence[GradCAMMaps]) -> None:
    """Draw the share of each run, and what a map that is the same everywhere would have: the area of the box."""
    shares = [100 * (run.share or 0) for run in runs]
    places = [i + 0.5 for i in range(len(runs))]
    presets = list(dict.fromkeys(_preset(run) for run in runs))
    colors = [COLORS[presets.index(_preset(run)) % len(COLORS)] for run in runs]
    bars = plot.barh(places, shares, 0.45, color=colors)
    names = ["–" if run.share is None else f"{100 * run.share:.0f}" for run in runs]
    plot.bar_label(bars, names, padding=3, fontsize=9, bbox={"color": "white", "pad": 0.5})
    box = next((run.box for run in runs if run.box is not None), None)
    if box is not None:
        area = 100 * (box[2] - box[0]) * (box[3] - box[1])
        plot.axvline(area, color=GREY, linewidth=1, linestyle="--", zorder=0)
        inside = min(max(area, 38), 68)  # so that the words stay above the bars
        plot.text(inside, -0.04, f"{area:.0f}: spread evenly", color=GREY, fontsize=8.5, ha="center", va="bottom")
    plot.set(xlim=(0, 100), ylim=(len(runs), 0), yticks=[], xticks=[0, 50, 100])
    plot.tick_params(labelsize=8)
    fewest, most = min(run.samples for run in runs), max(run.samples for run in runs)
    samples = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    plot.set_xlabel(f"mass inside the box (%),\nmean of {samples} images", fontsize=8)
    plot.spines[["top", "right"]].set_visible(False)


def _preset(run: GradCAMMaps) -> str:
    return run.name.rpartition(", ")[0]


def _lines(run: GradCAMMaps) -> str:
    """Write the preset above the seed."""
    preset, _, seed = run.name.rpartition(", ")
    return f"{short(preset, WORDS)}\n{seed}"
