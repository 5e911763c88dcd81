"""Walks along latent axes: what each axis means, beside how closely it tracks the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sitar.errors import RunError
from sitar.reporting.comparison import name_of
from sitar.reporting.figures.style import BLUE, ORANGE, SUSPICIOUS
from sitar.reporting.figures.tiles import fractions, short, tiles
from sitar.run_folder import RunFolder

MOST = 12  # axes that are shown: those that track the label most
TILE = 0.36  # inches of an image
LABELS, BARS, AIR = 0.65, 1.1, 0.15  # inches: names of axes, bars, and what is between two walks
HEAD, FOOT = 0.6, 0.6


@dataclass(frozen=True)
class Walk:
    """Decoded images (axis, step, channel, height, width) of one run, and v of the axes where it is known."""

    name: str
    start: str
    axes: list[int]
    images: NDArray[np.uint8]
    scores: list[float] | None


def read_walk(folder: RunFolder, start: int | None = None) -> Walk:
    """The walks from one start: by default from the first that is a sample, not the mean of all latents."""
    explain, arrays = folder.part("traversals")
    about = explain["traversals"]
    labels = [start["label"] for start in about["starts"]]
    if start is None:
        start = next((i for i, label in enumerate(labels) if label >= 0), 0)
    if not 0 <= start < len(labels):
        raise RunError(f"{str(folder.path)!r} has starts 0 to {len(labels) - 1}, not {start}.")
    where = "the mean of all latents" if labels[start] < 0 else f"a sample of class {labels[start]}"
    shown = list(range(len(about["axes"])))[:MOST]
    if scores := _scores(explain, folder, about["axes"]):
        shown = np.sort(np.argsort(-np.array(scores), kind="stable")[:MOST]).tolist()
        scores = [scores[i] for i in shown]
    axes = [about["axes"][i] for i in shown]
    return Walk(name_of(explain), where, axes, arrays["images"][start][shown], scores)


def _scores(explain: dict, folder: RunFolder, axes: Sequence[int]) -> list[float] | None:
    """v of each axis: on held-out samples where it was measured, else as the last epoch of training left it."""
    measured = explain.get("sensitivity") or {}
    known = dict(zip(measured.get("axes", []), measured.get("v", []), strict=True))
    if not known:
        lines = folder.metrics()
        known = dict(enumerate(lines[-1].get("shortcut_score", []) if lines else []))
    return [known[axis] for axis in axes] if all(axis in known for axis in axes) else None


def walks_figure(walks: Sequence[Walk]) -> Figure:
    """Each run's walks, a row an axis, with bars of v beside them."""
    widths = [LABELS + TILE * walk.images.shape[1] + (BARS if walk.scores is not None else 0) + AIR for walk in walks]
    height = TILE * max(len(walk.axes) for walk in walks)
    figure = Figure(figsize=(max(4.5, sum(widths)), HEAD + height + FOOT))
    left = 0.0
    for walk, width in zip(walks, widths, strict=True):
        wide, high = TILE * walk.images.shape[1], TILE * len(walk.axes)
        plot = figure.add_axes(fractions((left + LABELS, HEAD, wide, high), figure))
        tiles(plot, walk.images, [f"axis {axis}" for axis in walk.axes], [])
        plot.set_xlabel("lowest  →  highest", fontsize=9)
        plot.set_title(f"{short(walk.name, 48)}\nfrom {walk.start}", fontsize=9.5, loc="left")
        plot.tick_params(labelsize=8.5)
        if walk.scores is not None:
            size = (left + LABELS + wide + 0.12, HEAD, BARS - 0.42, high)
            _bars(figure.add_axes(fractions(size, figure)), walk.scores)
        left += width
    return figure


def _bars(plot: Axes, scores: Sequence[float]) -> None:
    places = [i + 0.5 for i in range(len(scores))]
    bars = plot.barh(places, scores, 0.6, color=[ORANGE if score > SUSPICIOUS else BLUE for score in scores])
    plot.bar_label(bars, fmt="%.2f", padding=2, fontsize=8)
    plot.set(xlim=(0, 1), ylim=(len(scores), 0), yticks=[], xticks=[0, 1])
    plot.tick_params(labelsize=8)
    plot.set_xlabel("v, |correlation\nwith the label|", fontsize=8.5)
    plot.spines[["top", "right"]].set_visible(False)
