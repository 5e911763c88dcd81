"""A finished run as a model to predict with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sitar.config import RunConfig, run_config
from sitar.data import load_data
from sitar.errors import DataError, RunError
from sitar.evaluation.metrics import softmax
from sitar.evaluation.predict import predict_logits
from sitar.methods import build_method, data_for
from sitar.records import RunFolder
from sitar.training.checkpoint import load_weights
from sitar.training.environment import resolve_device
from sitar.training.run import evaluate_method


def load(run: str | os.PathLike[str] | RunFolder, device: str = "auto") -> TrainedModel:
    """The model of a finished run folder."""
    return TrainedModel(run if isinstance(run, RunFolder) else RunFolder(Path(run)), device)


class TrainedModel:
    """Predicts for inputs as the training data stores them: images as uint8 (n, channel, height, width)."""

    def __init__(self, folder: RunFolder, device: str = "auto") -> None:
        folder.result()  # refuses a run that is not finished
        self.folder = folder
        self.config: RunConfig = run_config(folder.read_config())
        self.device = resolve_device(device)
        self.data = data_for(self.config, load_data(self.config.data))
        self.method = build_method(self.config, self.data.task)
        try:
            self.method.load_state_dict(load_weights(folder))
        except RuntimeError as error:
            raise RunError(f"The weights in {str(folder.path)!r} do not fit its config.yaml: {error}") from error
        self.method.to(self.device).eval()

    @property
    def classes(self) -> tuple[str, ...]:
        return self.data.classes

    def logits(self, x: Tensor | np.ndarray) -> np.ndarray:
        """Class scores (n, class) in float32."""
        x = torch.as_tensor(x)
        expected = self.data.task.shape
        if tuple(x.shape[1:]) != expected:
            raise DataError(f"Expected inputs of shape (n, {', '.join(map(str, expected))}), got {tuple(x.shape)}.")
        if x.dtype != torch.uint8 and not (x.is_floating_point() and bool(((x >= 0) & (x <= 1)).all())):
            raise DataError("Expected images as uint8, or as floats in [0, 1].")
        return predict_logits(self.method.logits, x, self.device, self.method.evaluation_batch)

    def predict_proba(self, x: Tensor | np.ndarray) -> np.ndarray:
        """Class probabilities (n, class)."""
        return softmax(self.logits(x))

    def predict(self, x: Tensor | np.ndarray) -> np.ndarray:
        """The index of the most probable class for each input."""
        return self.logits(x).argmax(1)

    def evaluate(self) -> dict[str, dict[str, Any]]:
        """Metrics of every split, computed anew."""
        return evaluate_method(self.method, self.data, self.device)[0]
