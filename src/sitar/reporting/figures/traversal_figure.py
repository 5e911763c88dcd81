"""Draw traversals of latent axes: what each axis means, beside how closely it tracks the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
LABELS, BARS, AIR = 0.65, 1.1, 0.15  # inches: names of axes, bars, and what is between two runs
HEAD, FOOT = 0.6, 0.6


@dataclass(frozen=True)
class RunTraversals:
    """A run has decoded images (axis, step, channel, height, width) along its axes, and v of them if it is known."""

    name: str
    start: str
    axes: list[int]
    images: NDArray[np.uint8]
    scores: list[float] | None


def read_traversals(folder: RunFolder, start: int | None = None) -> RunTraversals:
    """Read the traversals from one start: by default from the first that is a sample, not the mean of all latents."""
    explanation, arrays = folder.part("traversals")
    traversals = explanation["traversals"]
    labels = [start["label"] for start in traversals["starts"]]
    if start is None:
        start = next((i for i, label in enumerate(labels) if label >= 0), 0)
    if not 0 <= start < len(labels):
        raise RunError(f"{str(folder.path)!r} has starts 0 to {len(labels) - 1}, not {start}.")
    where = "the mean of all latents" if labels[start] < 0 else f"a sample of class {labels[start]}"
    shown = list(range(len(traversals["axes"])))[:MOST]
    if scores := _scores(explanation, folder, traversals["axes"]):
        shown = np.sort(np.argsort(-np.array(scores), kind="stable")[:MOST]).tolist()
        scores = [scores[i] for i in shown]
    axes = [traversals["axes"][i] for i in shown]
    return RunTraversals(name_of(explanation), where, axes, arrays["images"][start][shown], scores)


def _scores(explanation: dict[str, Any], folder: RunFolder, axes: Sequence[int]) -> list[float] | None:
    """Return v of each axis: on held-out samples where it was measured, else as the last epoch of training left it."""
    measured = explanation.get("sensitivity") or {}
    known = dict(zip(measured.get("axes", []), measured.get("v", []), strict=True))
    if not known:
        lines = folder.metrics()
        known = dict(enumerate(lines[-1].get("shortcut_score", []) if lines else []))
    return [known[axis] for axis in axes] if all(axis in known for axis in axes) else None


def traversal_figure(runs: Sequence[RunTraversals]) -> Figure:
    """Draw the traversals of each run, a row for each axis, with bars of v beside them."""
    widths = [LABELS + TILE * run.images.shape[1] + (BARS if run.scores is not None else 0) + AIR for run in runs]
    height = TILE * max(len(run.axes) for run in runs)
    figure = Figure(figsize=(max(4.5, sum(widths)), HEAD + height + FOOT))
    left = 0.0
    for run, width in zip(runs, widths, strict=True):
        wide, high = TILE * run.images.shape[1], TILE * len(run.axes)
        plot = figure.add_axes(fractions((left + LABELS, HEAD, wide, high), figure))
        tiles(plot, run.images, [f"axis {axis}" for axis in run.axes], [])
        plot.set_xlabel("lowest  →  highest", fontsize=9)
        plot.set_title(f"{short(run.name, 48)}\nfrom {run.start}", fontsize=9.5, loc="left")
        plot.tick_params(labelsize=8.5)
        if run.scores is not None:
            size = (left + LABELS + wide + 0.12, HEAD, BARS - 0.42, high)
            _bars(figure.add_axes(fractions(size, figure)), run.scores)
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
