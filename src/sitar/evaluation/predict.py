"""Predict a whole split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sitar.data.types import EvalSplit, in_batches
from sitar.evaluation.metrics import Predictions

Logits = Callable[[Tensor], Tensor]


def predict_split(
    logits: Logits,
    split: EvalSplit,
    device: torch.device,
    batch_size: int = 2048,
    watch: Callable[[int], None] = lambda _: None,
) -> Predictions:
    """Predict a split. Return the logits with the labels and groups that metrics compare them with.

    `watch` is called after each batch, see `in_batches`.
    """
    return Predictions(
        predict_logits(logits, split.x, device, batch_size, watch),
        split.y.cpu().numpy(),
        None if split.group is None else split.group.cpu().numpy(),
        split.group_names,
        split.group_share,
        split.majority,
    )


def predict_logits(
    logits: Logits,
    x: Tensor,
    device: torch.device,
    batch_size: int = 2048,
    watch: Callable[[int], None] = lambda _: None,
) -> Float[np.ndarray, "sample classes"]:
    """Return float32 logits for inputs as a split stores them. They are computed batch by batch on `device`."""
    return in_batches(lambda chunk: logits(chunk).float(), x, device, batch_size, watch).cpu().numpy()
