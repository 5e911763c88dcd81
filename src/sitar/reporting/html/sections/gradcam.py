"""Show Grad-CAM maps beside their images."""

from __future__ import annotations

from typing import Any

import numpy as np

from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.embed import contact_sheet
from sitar.reporting.pixels import framed, rgb, under_map

MOST_SIDE = 128  # pixels of a picture


def make(comparison: Comparison, sharing: int) -> dict[str, Any] | None:
    runs = [maps for run in comparison.runs if (maps := run_maps(run))]
    return {"runs": runs} if runs else None


def run_maps(run: ComparedRun) -> dict[str, Any] | None:
    """Return the pictures of a run with their classes, and how much of the maps lies in the box."""
    gradcam, arrays = run.part("gradcam"), run.part_arrays("gradcam")
    if not gradcam or not arrays:
        return None
    step = -(-max(arrays["images"].shape[2:]) // MOST_SIDE)
    box = gradcam["box"]
    pictures = []
    samples = zip(arrays["images"], arrays["maps"], arrays["labels"], arrays["predicted"], strict=True)
    for image, saliency, label, predicted in samples:
        plain = rgb(image).transpose(2, 0, 1)[:, ::step, ::step]
        covered = under_map(image, saliency)[:, ::step, ::step]
        pair = np.stack([plain, covered if box is None else framed(covered, box)])
        classes = {"label": run.class_name(int(label)), "predicted": run.class_name(int(predicted))}
        pictures.append({"uri": contact_sheet(pair[None]).uri, **classes})
    return {
        "label": run.label,
        "pictures": pictures,
        "split": gradcam["split"],
        "n": gradcam["n"],
        "mass_in_box": gradcam["mass_in_box"],
        "area": None if box is None else (box[2] - box[0]) * (box[3] - box[1]),
    }
