"""Offer sliders that move one latent axis: the decoded images, and what the classifier predicts along the way."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.axes import highest, shares
from sitar.reporting.html.embed import contact_sheet

MOST_PIXELS = 20_000_000  # of all traversals together, so that the file stays small: fewer starts, then fewer axes
SHOWN_PROBABILITIES = 4  # classes beside a picture


def make(comparison: Comparison, sharing: int) -> dict[str, Any] | None:
    runs = [run for run in comparison.runs if run.part_arrays("traversals")]
    models = [_sliders(run, MOST_PIXELS // (len(runs) * sharing)) for run in runs]
    return {"models": models} if models else None


def _sliders(run: ComparedRun, pixels: int) -> dict[str, Any]:
    """Return the axes of a run, those that follow the label most first, with a contact sheet for each start."""
    traversals, arrays = run.part("traversals") or {}, run.part_arrays("traversals")
    images, probabilities = arrays["images"], arrays["probabilities"]
    starts, most_axes = _affordable(images.shape, pixels)
    measured = run.part("sensitivity") or {"axes": [], "v": [], "values": []}
    v = dict(zip(measured["axes"], measured["v"], strict=True))
    share = dict(zip(measured["axes"], shares(measured["values"]), strict=True))
    order = highest([v.get(axis, 0.0) for axis in traversals["axes"]], most_axes)
    return {
        "label": run.label,
        "classes": run.classes,
        "axes": [
            {
                "axis": (axis := traversals["axes"][place]),
                "v": v.get(axis),
                "share": share.get(axis),
                "values": [round(value, 2) for value in traversals["values"][place]],
            }
            for place in order
        ],
        "starts": [
            {
                "name": _start(run, traversals["starts"][start]["label"]),
                "sheet": asdict(contact_sheet(images[start, order])),
                "probabilities": _most_probable(probabilities[start, order]),
            }
            for start in range(starts)
        ],
        "left": len(traversals["axes"]) - most_axes,
    }


def _affordable(shape: tuple[int, ...], pixels: int) -> tuple[int, int]:
    """Return how many starts and axes there is room for."""
    starts, axes, steps, _, height, width = shape
    strips = max(1, pixels // (steps * height * width))  # traversals of one axis from one start
    return max(1, min(starts, strips // axes)), min(axes, strips)


def _start(run: ComparedRun, label: int) -> str:
    return "the mean of all" if label < 0 else f"a sample of {run.class_name(label)}"


def _most_probable(probabilities: np.ndarray) -> list[dict[str, Any]]:
    """Return for each axis the classes that are most probable somewhere along it, and their probabilities."""
    chosen = []
    for along in probabilities:
        classes = np.sort(np.argsort(-along.max(0), kind="stable")[:SHOWN_PROBABILITIES])
        chosen.append({"classes": classes.tolist(), "values": np.nan_to_num(along[:, classes]).round(3).tolist()})
    return chosen
