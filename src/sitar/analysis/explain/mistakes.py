"""What does a run get wrong? Images of the test splits, as far as two runs agree the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sitar.analysis import traversal as pictures
from sitar.analysis.samples import permutation
from sitar.analysis.traversal import shrunk
from sitar.errors import DataError, RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.run_folder import RunFolder

MOST = 200  # of a split


def wrong(model: TrainedModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Indices and images of what the run's own predictions, as it has left them, have wrong."""
    if len(model.data.task.shape) != 3:
        raise RunError("This data holds features, not images.")
    splits = {name: split for name, split in model.data.evaluation.items() if not name.startswith("val")}
    if not splits:
        raise DataError("This data has no test split.")
    predictions = read_predictions(model.folder)
    arrays: dict[str, np.ndarray] = {}
    for name, split in splits.items():
        mistaken = torch.from_numpy(predictions[name]) != split.y
        order = permutation(len(split))
        index = order[mistaken[order]][:MOST]
        arrays[f"{name}/index"] = index.numpy()
        arrays[f"{name}/images"] = shrunk(split.x[index], pictures.MOST_SIDE).numpy()
    return {"splits": list(splits), "most": MOST}, arrays


def read_predictions(folder: RunFolder) -> dict[str, np.ndarray]:
    """The predicted class of every sample, by split."""
    logits = {name: array for name, array in folder.predictions().items() if name.endswith("/logits")}
    return {name.removesuffix("/logits"): values.argmax(1) for name, values in logits.items()}
