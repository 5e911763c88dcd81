"""Ask a classifier for the same answer with and without noise (Eq. 4)."""

from __future__ import annotations

from torch import Tensor

from sitar.errors import DataError
from sitar.functional.losses import consistency


def consistency_loss(logits: Tensor, noisy_logits: Tensor) -> Tensor:
    """Return |f(z) - f(zbar)|^2, summed over classes and averaged over the batch, in float32 or wider.

    `logits` and `noisy_logits` have the shape (batch, classes). The gradient flows into both. The paper weighs this
    term with lambda = 10.

    >>> import torch
    >>> consistency_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]))
    tensor(5.)
    """
    if logits.ndim != 2 or logits.shape != noisy_logits.shape:
        raise DataError(
            f"Logits have the shapes {tuple(logits.shape)} and {tuple(noisy_logits.shape)}. The consistency loss needs "
            "two of the same shape (batch, classes). A single logit a sample has the shape (batch, 1)."
        )
    return consistency(_wide(logits), _wide(noisy_logits))


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.element_size() > 4 else logits.float()
