"""Evaluate a method on every split of its data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sitar.data import Data, EvalSplit
from sitar.evaluation.metrics import split_metrics
from sitar.evaluation.predict import Over, here, predict_split
from sitar.methods import Method
from sitar.progress import Watch, unwatched


def evaluate_method(
    method: Method, data: Data, device: torch.device, watch: Watch = unwatched, over: Over = here
) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray]]:
    """Return the metrics of every split by name, and the predictions of the evaluation splits as flat arrays.

    `over` may have other processes predict a part, see `predict_split`.
    """
    method.eval()
    metrics: dict[str, dict[str, Any]] = {}
    predictions: dict[str, np.ndarray] = {}
    for name, split in {"train": EvalSplit(data.train.x, data.train.y), **data.evaluation}.items():
        shown = watch(name, len(split))
        predicted = predict_split(method.logits, split, device, method.evaluation_batch, shown, over)
        metrics[name] = split_metrics(predicted)
        if name != "train":
            predictions |= {f"{name}/logits": predicted.logits, f"{name}/y": predicted.y}
            if predicted.group is not None:
                predictions[f"{name}/group"] = predicted.group
            if predicted.group_share is not None:
                predictions[f"{name}/group_share"] = np.array(predicted.group_share)
                predictions[f"{name}/majority"] = np.array(sorted(predicted.majority), np.int64).reshape(-1, 2)
    return metrics, predictions
