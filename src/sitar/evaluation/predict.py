"""Predict a whole split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sitar.data.rows import Stored
from sitar.data.types import EvalSplit, in_batches
from sitar.evaluation.metrics import Predictions

Logits = Callable[[Tensor], Tensor]
Over = Callable[[Callable[[Stored], Tensor], Stored], Tensor]  # of a function of samples, and samples


def here(function: Callable[[Stored], Tensor], rows: Stored) -> Tensor:
    """Apply a function of samples to all of them in this process."""
    return function(rows)


def predict_split(
    logits: Logits,
    split: EvalSplit,
    device: torch.device,
    batch_size: int = 2048,
    watch: Callable[[int], None] = lambda _: None,
    over: Over = here,
) -> Predictions:
    """Predict a split. Return the logits with the labels and groups that metrics compare them with.

    `watch` is called after each batch, see `in_batches`. `over` may have other processes predict a part.
    """
    return Predictions(
        predict_logits(logits, split.x, device, batch_size, watch, over),
        split.y.cpu().numpy(),
        None if split.group is None else split.group.cpu().numpy(),
        split.group_names,
        split.group_share,
        split.majority,
    )


def predict_logits(
    logits: Logits,
    x: Stored,
    device: torch.device,
    batch_size: int = 2048,
    watch: Callable[[int], None] = lambda _: None,
    over: Over = here,
) -> Float[np.ndarray, "sample classes"]:
    """Return float32 logits for inputs as a split stores them. They are computed batch by batch on `device`."""

    def predict(rows: Stored) -> Tensor:
        return in_batches(lambda chunk: logits(chunk).float(), rows, device, batch_size, watch)

    return over(predict, x).cpu().numpy()
