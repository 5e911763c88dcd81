"""What does a run get wrong? Misclassified test images, in a fixed order, so that runs can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sitar.analysis.explain.subject import Subject
from sitar.analysis.samples import permutation, refuse_features
from sitar.analysis.thumbnails import thumbnails
from sitar.errors import DataError
from sitar.run_folder import RunFolder
from sitar.splits import TEST_SPLITS

MOST = 200  # of a split


def make(subject: Subject) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return indices and images of the samples that the run's own predictions, as it has left them, misclassify."""
    model = subject.model
    refuse_features(model)
    splits = {name: split for name, split in model.data.evaluation.items() if name in TEST_SPLITS}
    if not splits:
        raise DataError("This data has no test split.")
    predictions = predicted_classes(model.folder)
    arrays: dict[str, np.ndarray] = {}
    for name, split in splits.items():
        mistaken = torch.from_numpy(predictions[name]) != split.y
        order = permutation(len(split))
        index = order[mistaken[order]][:MOST]
        arrays[f"{name}/index"] = index.numpy()
        arrays[f"{name}/images"] = thumbnails(split.x[index]).numpy()
    return {"splits": list(splits), "most": MOST}, arrays


def predicted_classes(folder: RunFolder) -> dict[str, np.ndarray]:
    """Return the predicted class of every sample, by split."""
    logits = {name: array for name, array in folder.predictions().items() if name.endswith("/logits")}
    return {name.removesuffix("/logits"): array.argmax(1) for name, array in logits.items()}
