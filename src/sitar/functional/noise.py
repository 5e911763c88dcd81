"""Draw noise on a latent, along the axes or directions that track the label (Eq. 3), before the factor alpha.

`NOISES` holds every kind. Settings, theory and tests read it: to add a kind, add a class here.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sitar.functional.correlation import shortcut_score

Distribution = Literal["gaussian", "rademacher", "uniform"]


class Noise:
    """This is one kind of noise. It has no state, and depends on the latent and its axes' correlation with the label.

    A kind that has rows A is e @ A, for independent e of mean 0 and variance 1: its mean is 0 and its covariance is A^T
    A. Theorem 1 is about such noise. A kind that has none says why in `no_rows`.
    """

    name: ClassVar[str]
    about: ClassVar[str]  # what it is, for the help of the setting
    has_distribution: ClassVar[bool] = True  # whether it draws numbers, of a distribution that may be chosen
    no_rows: ClassVar[str | None] = None

    def draw(
        self,
        z: Float[Tensor, "batch latent"],
        correlation: Float[Tensor, "contrast latent"],
        distribution: Distribution = "gaussian",
    ) -> Float[Tensor, "batch latent"]:
        """Draw a perturbation of the shape, device and dtype of `z`, without gradient."""
        raise NotImplementedError

    def rows(self, correlation: Float[Tensor, "contrast latent"]) -> Float[Tensor, "noise latent"]:
        """Return A."""
        raise ValueError(self.no_rows)


class Axis(Noise):
    name = "axis"
    about = "the paper, on each axis by its score"

    def draw(self, z: Tensor, correlation: Tensor, distribution: Distribution = "gaussian") -> Tensor:
        return axis_noise(z, shortcut_score(correlation), distribution)

    def rows(self, correlation: Tensor) -> Tensor:
        return torch.diag(shortcut_score(correlation))


class Direction(Noise):
    name = "direction"
    about = "along the correlated direction"

    def draw(self, z: Tensor, correlation: Tensor, distribution: Distribution = "gaussian") -> Tensor:
        return direction_noise(z, correlation, distribution)

    def rows(self, correlation: Tensor) -> Tensor:
        return _contrasts(correlation)


class Swap(Noise):
    name = "swap"
    about = "exchange that component with another sample's"
    has_distribution = False
    no_rows = "swap pulls each sample towards the others; direction is the closest kind of mean 0"

    def draw(self, z: Tensor, correlation: Tensor, distribution: Distribution = "gaussian") -> Tensor:
        return swap_noise(z, correlation)


class Isotropic(Noise):
    name = "isotropic"
    about = "on every axis alike, v = 1"

    def draw(self, z: Tensor, correlation: Tensor, distribution: Distribution = "gaussian") -> Tensor:
        return axis_noise(z, torch.ones_like(correlation[0]), distribution)

    def rows(self, correlation: Tensor) -> Tensor:
        return torch.eye(correlation.shape[1], dtype=correlation.dtype, device=correlation.device)


NOISES: dict[str, Noise] = {noise.name: noise for noise in (Axis(), Direction(), Swap(), Isotropic())}
WITH_ROWS = tuple(name for name, noise in NOISES.items() if noise.no_rows is None)


def unit_noise(like: Float[Tensor, "*shape"], distribution: Distribution = "gaussian") -> Float[Tensor, "*shape"]:
    """Draw independent symmetric noise of mean 0 and variance 1 (Theorem 1 asks for no more)."""
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
    """Draw v * e, one number for each axis: the covariance is diag(v^2) (Eq. 3). A score of ones is isotropic noise."""
    return score.to(z.dtype) * unit_noise(z.detach(), distribution)


def direction_noise(
    z: Float[Tensor, "batch latent"],
    correlation: Float[Tensor, "contrast latent"],
    distribution: Distribution = "gaussian",
) -> Float[Tensor, "batch latent"]:
    """Draw e @ A, one number for each contrast.

    The covariance is A^T A. For two classes it is r r^T, however the latent is rotated.
    """
    rows = _contrasts(correlation).to(z.dtype)
    return unit_noise(z.detach()[:, :1].expand(-1, len(rows)), distribution) @ rows


def swap_noise(
    z: Float[Tensor, "batch latent"], correlation: Float[Tensor, "contrast latent"]
) -> Float[Tensor, "batch latent"]:
    """Return what exchanges each sample's component along the correlated direction with its neighbour's.

    The neighbour is the previous sample of the batch, which shuffling has made a random one. The exchange is scaled by
    the length of the correlation, up to 1: for two classes it is (z' - z) @ r r^T / |r|. Redundant axes can make r
    longer; the exchange is then complete, and no more. With more classes it is (z' - z) @ A^T A / |A|.
    """
    z = z.detach()
    rows = _contrasts(correlation).to(z.dtype)
    length = rows.norm()
    return (z.roll(1, 0) - z) @ rows.T @ rows / (length.clamp_min(1e-8) * length.clamp_min(1.0))


def _contrasts(correlation: Tensor) -> Tensor:
    """Return rows A with A^T A = r r^T for two classes.

    More classes have one row for each class against the rest. This counts each contrast twice, hence sqrt(1/2).
    """
    return correlation if len(correlation) == 1 else correlation * math.sqrt(0.5)
