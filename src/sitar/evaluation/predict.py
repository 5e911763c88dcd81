"""Logits of a whole split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sitar.data.types import in_batches


def predict_logits(
    logits: Callable[[Tensor], Tensor],
    x: Tensor,
    device: torch.device,
    batch_size: int = 2048,
    watch: Callable[[int], None] = lambda _: None,
) -> Float[np.ndarray, "sample classes"]:
    """Float32 logits for inputs as a split stores them, batch by batch on `device`; see `in_batches` for `watch`."""
    return in_batches(lambda chunk: logits(chunk).float(), x, device, batch_size, watch).cpu().numpy()
