"""Measure which latent axes track the label (Eq. 2)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from sitar.functional.reduce import global_sum

EPS = 1e-8


def label_correlation(
    mu: Float[Tensor, "batch latent"],
    y: Int[Tensor, " batch"],
    num_classes: int,
    weight: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, "contrast latent"]:
    """Return the signed Pearson correlation of each axis with the label, over the global batch (Eq. 2, no modulus).

    Two classes give one row, the correlation with y. More classes give one row for each class against the rest, because
    a class index has no order. A constant axis or a batch of one class gives 0. The result carries no gradient.
    """
    mu = mu.detach().float()
    target = one_hot(y, num_classes).to(mu.dtype)
    if num_classes == 2:
        target = target[:, 1:]
    w = torch.ones_like(mu[:, :1]) if weight is None else weight.detach().to(mu.dtype).unsqueeze(1)

    total = global_sum(w.sum())
    mean_mu = global_sum((w * mu).sum(0)) / total
    mean_target = global_sum((w * target).sum(0)) / total

    mu, target = mu - mean_mu, target - mean_target
    with torch.autocast(mu.device.type, enabled=False):  # in float32 also under mixed precision
        covariance = global_sum((w * target).T @ mu) / total
    var_mu = global_sum((w * mu.square()).sum(0)) / total
    var_target = global_sum((w * target.square()).sum(0)) / total
    return covariance / (var_mu.clamp_min(EPS).sqrt() * (var_target + EPS).sqrt().unsqueeze(1))


def shortcut_score(correlation: Float[Tensor, "contrast latent"]) -> Float[Tensor, " latent"]:
    """Return the score v of each axis: its largest absolute correlation over the contrasts (Eq. 2)."""
    return correlation.abs().amax(0)
