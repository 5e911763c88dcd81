"""Perturbations of a latent along axes or directions that track the label (Eq. 3), before the factor alpha.

All take the latent `z` for its shape, device and dtype, and return a perturbation of the same shape without gradient.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sitar.functional.correlation import shortcut_score

Noise = Literal["axis", "direction", "swap", "isotropic"]
Distribution = Literal["gaussian", "rademacher", "uniform"]


def unit_noise(like: Float[Tensor, "*shape"], distribution: Distribution = "gaussian") -> Float[Tensor, "*shape"]:
    """Independent symmetric noise of mean 0 and variance 1 (Theorem 1 asks for no more)."""
    if distribution == "gaussian":
        return torch.randn_like(like)
    uniform = torch.rand_like(like)
    if distribution == "rademacher":
        return torch.where(uniform < 0.5, -1.0, 1.0).to(like.dtype)
    return (2 * uniform - 1) * math.sqrt(3)


def axis_noise(
    z: Float[Tensor, "batch latent"],
    score: Float[Tensor, " latent"],
    distribution: Distribution = "gaussian",
) -> Float[Tensor, "batch latent"]:
    """v * e, one draw an axis: covariance diag(v^2) (Eq. 3). A score of ones is isotropic noise."""
    return score.to(z.dtype) * unit_noise(z.detach(), distribution)


def direction_noise(
    z: Float[Tensor, "batch latent"],
    correlation: Float[Tensor, "contrast latent"],
    distribution: Distribution = "gaussian",
) -> Float[Tensor, "batch latent"]:
    """e @ A, one draw a contrast: covariance A^T A, which for two classes is r r^T, however the latent is rotated."""
    rows = _contrasts(correlation).to(z.dtype)
    return unit_noise(z.detach()[:, :1].expand(-1, len(rows)), distribution) @ rows


def swap_noise(
    z: Float[Tensor, "batch latent"], correlation: Float[Tensor, "contrast latent"]
) -> Float[Tensor, "batch latent"]:
    """What it takes to exchange each sample's component along the correlated direction with its neighbour's.

    The exchange is scaled by the length of the correlation, up to 1: for two classes (z' - z) @ r r^T / |r|. Redundant
    axes can make r longer; the exchange is then complete, and no more. The neighbour is the previous sample of the
    batch, which shuffling has made a random one. With more classes, (z' - z) @ A^T A / |A|.
    """
    z = z.detach()
    rows = _contrasts(correlation).to(z.dtype)
    length = rows.norm()
    return (z.roll(1, 0) - z) @ rows.T @ rows / (length.clamp_min(1e-8) * length.clamp_min(1.0))


def noise_rows(noise: Noise, correlation: Float[Tensor, "contrast latent"]) -> Float[Tensor, "noise latent"]:
    """Rows A such that e @ A, for independent e of variance 1, is that noise: its covariance is A^T A. Not for swap."""
    match noise:
        case "axis":
            return torch.diag(shortcut_score(correlation))
        case "direction":
            return _contrasts(correlation)
        case "isotropic":
            return torch.eye(correlation.shape[1], dtype=correlation.dtype, device=correlation.device)
        case "swap":
            raise ValueError("swap exchanges what a batch holds: it draws no noise")


def _contrasts(correlation: Tensor) -> Tensor:
    """Rows A with A^T A = r r^T for two classes; one-vs-rest rows count each contrast twice, hence sqrt(1/2)."""
    return correlation if len(correlation) == 1 else correlation * math.sqrt(0.5)
