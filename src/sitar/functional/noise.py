"""Draw noise on a latent, along the axes or directions that track the label (Eq. 3), before the factor alpha.

`NOISES` holds every kind. Settings, theory and tests read it: to add a kind, add a class here.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sitar.functional.correlation import EPS, LabelMoments, shortcut_score
from sitar.functional.draws import normal_like, uniform_like
from sitar.functional.gate import along
from sitar.functional.reduce import gathered, global_sum, own_rows

Distribution = Literal["gaussian", "rademacher", "uniform"]


class Noise:
    """This is one kind of noise. It has no state, and depends on the latent and its moments with the label.

    A kind that has rows A is e @ A, for independent e of mean 0 and variance 1: its mean is 0 and its covariance is A^T
    A. Theorem 1 is about such noise. A kind that has none says why in `no_rows`.
    """

    name: ClassVar[str]
    about: ClassVar[str]  # what it is, for the help of the setting
    follows_scale: ClassVar[bool] = True  # whether a latent in other units has its noise in these units too
    has_distribution: ClassVar[bool] = True  # whether it draws numbers, of a distribution that may be chosen
    has_target: ClassVar[bool] = True  # whether it acts on suspects, which nuisances and the gate are about
    no_rows: ClassVar[str | None] = None

    def draw(
        self, z: Float[Tensor, "batch latent"], moments: LabelMoments, distribution: Distribution = "gaussian"
    ) -> Float[Tensor, "batch latent"]:
        """Draw a perturbation of the shape, device and dtype of `z`, without gradient."""
        raise NotImplementedError

    def rows(self, moments: LabelMoments) -> Float[Tensor, "noise latent"]:
        """Return A."""
        raise ValueError(self.no_rows)

    def suspects(
        self, moments: LabelMoments, covariance: Float[Tensor, "latent latent"]
    ) -> Float[Tensor, "latent latent"]:
        """Return the projection onto what this noise acts on, for the gate: z @ it is the part that is perturbed."""
        return along(self.rows(moments), covariance)


class Axis(Noise):
    name = "axis"
    about = "the paper, on each axis by its score"
    follows_scale = False

    def draw(self, z: Tensor, moments: LabelMoments, distribution: Distribution = "gaussian") -> Tensor:
        return axis_noise(z, shortcut_score(moments.correlation), distribution)

    def rows(self, moments: LabelMoments) -> Tensor:
        return torch.diag(shortcut_score(moments.correlation))

    def suspects(self, moments: LabelMoments, covariance: Tensor) -> Tensor:
        score = shortcut_score(moments.correlation)
        return torch.diag((score >= score.amax() / 2).to(score.dtype))  # half of the strongest noise, or more


class Direction(Noise):
    name = "direction"
    about = "along the direction that the label shares with the latent"

    def draw(self, z: Tensor, moments: LabelMoments, distribution: Distribution = "gaussian") -> Tensor:
        return direction_noise(z, moments.shared, distribution)

    def rows(self, moments: LabelMoments) -> Tensor:
        return _contrasts(moments.shared)


class Swap(Noise):
    name = "swap"
    about = "exchange that component with another sample's"
    has_distribution = False
    no_rows = "swap pulls each sample towards the others; direction is the closest kind of mean 0"

    def draw(self, z: Tensor, moments: LabelMoments, distribution: Distribution = "gaussian") -> Tensor:
        return swap_noise(z, moments.shared, moments.within)

    def suspects(self, moments: LabelMoments, covariance: Tensor) -> Tensor:
        return along(_contrasts(moments.shared), covariance)


class Isotropic(Noise):
    name = "isotropic"
    about = "on every axis alike, v = 1"
    follows_scale = False
    has_target = False

    def draw(self, z: Tensor, moments: LabelMoments, distribution: Distribution = "gaussian") -> Tensor:
        return axis_noise(z, torch.ones_like(moments.spread), distribution)

    def rows(self, moments: LabelMoments) -> Tensor:
        return torch.eye(len(moments.spread), dtype=moments.spread.dtype, device=moments.spread.device)


NOISES: dict[str, Noise] = {noise.name: noise for noise in (Axis(), Direction(), Swap(), Isotropic())}
WITH_ROWS = tuple(name for name, noise in NOISES.items() if noise.no_rows is None)


def unit_noise(like: Float[Tensor, "*shape"], distribution: Distribution = "gaussian") -> Float[Tensor, "*shape"]:
    """Draw independent symmetric noise of mean 0 and variance 1 (Theorem 1 asks for no more)."""
    if distribution == "gaussian":
        return normal_like(like)
    uniform = uniform_like(like)
    if distribution == "rademacher":
        return torch.where(uniform < 0.5, -1.0, 1.0).to(like.dtype)
    return (2 * uniform - 1) * math.sqrt(3)


def axis_noise(
    z: Float[Tensor, "batch latent"],
    score: Float[Tensor, " latent"],
    distribution: Distribution = "gaussian",
) -> Float[Tensor, "batch latent"]:
    """Draw v * e, one number for each axis: the covariance is diag(v^2) (Eq. 3). A score of ones is isotropic noise.

    >>> axis_noise(torch.zeros(2, 3), torch.tensor([1.0, 0.0, 0.5])) != 0
    tensor([[ True, False,  True],
            [ True, False,  True]])
    """
    return score.to(z.dtype) * unit_noise(z.detach(), distribution)


def direction_noise(
    z: Float[Tensor, "batch latent"],
    shared: Float[Tensor, "contrast latent"],
    distribution: Distribution = "gaussian",
) -> Float[Tensor, "batch latent"]:
    """Draw e @ A, one number for each contrast. The covariance is A^T A.

    For two classes A is c / sd(y), where c is the covariance of the latent with the label. If the latent is rotated,
    stretched or mapped by any matrix, then c and hence the noise are mapped in the same way.
    """
    rows = _contrasts(shared).to(z.dtype)
    return unit_noise(z.detach()[:, :1].expand(-1, len(rows)), distribution) @ rows


def swap_noise(
    z: Float[Tensor, "batch latent"],
    shared: Float[Tensor, "contrast latent"],
    within: Float[Tensor, "latent latent"] | None = None,
) -> Float[Tensor, "batch latent"]:
    """Return what exchanges each sample's component along the shared direction with its neighbour's.

    The neighbour is the previous sample of the global batch, which shuffling has made a random one. For two classes it
    is (z' - z) @ w c^T / R. c is the covariance with the label, in units of the label's deviation. w = S^-1 c reads the
    component off, where S is the covariance of z. R^2 = w c^T is the share of the label's variance that z explains: the
    exchange is complete where z tells the label for certain. If z is rotated, stretched or mapped by any matrix, the
    exchange is mapped in the same way. With more classes c has one row for each class against the rest.

    If c is only the part that lies along nuisances, S is the covariance within classes with this part: what else tells
    the label is then not read.
    """
    z = z.detach()
    rows = _contrasts(shared)
    readers = _whitened(z, rows) if within is None else torch.linalg.solve_ex(within + rows.T @ rows, rows.T)[0].T
    length = (rows * readers).sum().clamp_min(0).sqrt()
    inner = readers.T @ rows / (length.clamp_min(1e-8) * length.clamp_min(1.0))
    return (own_rows(gathered(z).roll(1, 0)) - z) @ inner.to(z.dtype)


def _whitened(z: Tensor, rows: Tensor) -> Tensor:
    """Return rows @ S^-1, where S is the covariance of z over the global batch.

    S is shrunk towards its diagonal by axes / samples. It can then be inverted with more axes than samples, with a
    constant axis and with copies of an axis.
    """
    z, axes = z.float(), z.shape[1]
    samples = global_sum(torch.ones_like(z[:, 0]).sum())
    z = z - global_sum(z.sum(0)) / samples
    with torch.autocast(z.device.type, enabled=False):  # in float32 also under mixed precision
        covariance = global_sum(z.T @ z) / samples
    spread = covariance.diagonal().clamp_min(EPS).sqrt()
    share = (axes / samples).clamp_max(1.0)
    shrunk = (1 - share) * covariance / torch.outer(spread, spread) + share * torch.eye(axes, device=z.device)
    solved, _ = torch.linalg.solve_ex(shrunk, (rows / spread).T)  # without a check, which would wait for the device
    return solved.T / spread


def _contrasts(shared: Tensor) -> Tensor:
    """Return rows A with A^T A = c c^T for two classes.

    More classes have one row for each class against the rest. This counts each contrast twice, hence sqrt(1/2).
    """
    return shared if len(shared) == 1 else shared * math.sqrt(0.5)
