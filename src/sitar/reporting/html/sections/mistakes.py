"""Show misclassified images, with what every run predicts: those that one run gets wrong and another right."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.embed import contact_sheet

MOST_IMAGES = 48  # of each run, that it gets wrong and another does not
COLUMNS = 16


def make(comparison: Comparison, sharing: int) -> dict[str, Any] | None:
    split = comparison.main_split
    runs = [run for run in comparison.runs if len(run.labels(split))]
    images = _images(runs, split)
    if not images:
        return None
    order = sorted(images)
    columns = min(COLUMNS, len(order))
    blank = np.zeros_like(images[order[0]])
    tiles = [images[index] for index in order] + [blank] * (-len(order) % columns)
    sheet = contact_sheet(np.stack(tiles).reshape(-1, columns, *blank.shape))
    labels, predicted = runs[0].labels(split), [run.logits(split).argmax(1) for run in runs]
    items = [
        {"index": index, "label": int(labels[index]), "predicted": [int(classes[index]) for classes in predicted]}
        for index in order
    ]
    return {
        "data": {
            "sheet": asdict(sheet),
            "items": items,
            "runs": [run.label for run in runs],
            "classes": comparison.classes,
            "split": split,
        }
    }


def _images(runs: list[ComparedRun], split: str) -> dict[int, np.ndarray]:
    """Return images by their index that one run gets wrong and another right; of a single run all that it kept."""
    right = [run.is_right(split) for run in runs]
    chosen: dict[int, np.ndarray] = {}
    for place, run in enumerate(runs):
        arrays = run.part_arrays("mistakes")
        kept = zip(arrays.get(f"{split}/index", ()), arrays.get(f"{split}/images", ()), strict=True)
        others = [answers for other, answers in enumerate(right) if other != place]
        known = [(int(i), image) for i, image in kept if 0 <= i < len(right[place])]
        telling = [(i, image) for i, image in known if not others or any(answers[i] for answers in others)]
        chosen |= dict(telling[:MOST_IMAGES])
    return chosen
