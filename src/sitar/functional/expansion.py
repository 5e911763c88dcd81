"""Compute what noise on the latent does to a classifier (Theorem 1): to second order in closed form, and exactly.

Noise is alpha * e @ A, for independent e of mean 0 and variance 1. Its covariance is alpha^2 A^T A. The paper has A =
diag(v). A single row r is noise along one direction, and A = I is isotropic noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import vjp, vmap
from torch.nn.functional import one_hot

from sitar.functional.cubature import Rule
from sitar.functional.losses import sample_cross_entropy
from sitar.functional.precision import in_float64

Classifier = Callable[[Tensor], Tensor]  # of latents (batch, latent), each row on its own, to logits (batch, classes)
CHUNK = 64  # points evaluated at a time
FITTED = 4  # alphas that the order is fitted to


class Expected(NamedTuple):
    """These are both parts of the objective for every sample, as expectations over the noise."""

    cross_entropy: Float[Tensor, " batch"]
    consistency: Float[Tensor, " batch"]  # before lambda

    def total(self, lambda_: float) -> Float[Tensor, " batch"]:
        return self.cross_entropy + lambda_ * self.consistency


class Expansion(NamedTuple):
    """These are the terms of Theorem 1 for every sample, at alpha = 1. They are not multiplied by lambda yet.

    The paper's Jacobian term is robust + lambda * change, with lambda = 1. The matrix in it is H/2 + lambda I.
    """

    clean: Float[Tensor, " batch"]  # cross-entropy without noise
    robust: Float[Tensor, " batch"]  # Jacobian term, the cross-entropy's share: tr(H/2 J A^T A J^T)
    change: Float[Tensor, " batch"]  # Jacobian term, the consistency's share: tr(J A^T A J^T)
    curvature: Float[Tensor, " batch"]  # 1/2 sum over rows a of A of sum_c g_c (a^T H_c a); may be negative

    def at(self, alpha: float | Tensor) -> Expected:
        """Return the objective that the theorem predicts."""
        return Expected(self.clean + alpha**2 * (self.robust + self.curvature), alpha**2 * self.change)


def expand(
    f: Classifier, z: Float[Tensor, "batch latent"], y: Int[Tensor, " batch"], A: Float[Tensor, "noise latent"]
) -> Expansion:
    """Compute the terms of Theorem 1 at every sample. They are differentiable, compile, and run under vmap.

    There is one backward pass for each class and one for each row of A. All are batched, so memory grows with their
    number. Only reverse mode is used, because torch's forward mode loads TorchScript, of which torch itself warns.
    """
    logits, pull_back = vjp(f, z)  # type: ignore[reportAssignmentType]
    classes = logits.shape[1]
    probability = logits.softmax(1)
    gradient = probability - one_hot(y, classes)  # the derivative of the cross-entropy by the logits

    outputs = torch.eye(classes, dtype=z.dtype, device=z.device).unsqueeze(1).expand(-1, *logits.shape)
    (jacobian,) = vmap(pull_back)(outputs)
    slopes = (jacobian @ A.T).permute(1, 2, 0)  # (batch, noise, classes)
    weight = probability.unsqueeze(1)
    mean = (weight * slopes).sum(2, keepdim=True)
    spread = (weight * (slopes - mean).square()).sum(2)  # s^T H s, as H = diag(p) - p p^T

    def weighted_gradient(point: Tensor) -> Tensor:
        """Return the gradient of sum_c g_c f_c, with g held constant."""
        return vjp(f, point)[1](gradient)[0]  # type: ignore[reportIndexIssue]

    _, bend = vjp(weighted_gradient, z)  # type: ignore[reportAssignmentType]
    bends = vmap(lambda row: bend(row.expand_as(z))[0] @ row)(A)

    return Expansion(
        clean=sample_cross_entropy(logits, y),
        robust=0.5 * spread.sum(1),
        change=slopes.square().sum((1, 2)),
        curvature=0.5 * bends.sum(0),
    )


@torch.no_grad()
def exact(
    f: Classifier,
    z: Float[Tensor, "batch latent"],
    y: Int[Tensor, " batch"],
    A: Float[Tensor, "noise latent"],
    alpha: float,
    rule: Rule,
) -> Expected:
    """Compute the objective without expansion, as exactly as `rule` allows. It has no gradient."""
    clean = f(z)
    cross_entropy, consistency = torch.zeros_like(clean[:, 0]), torch.zeros_like(clean[:, 0])
    points, weights = rule.points.to(z), rule.weights.to(z)
    for chunk, weight in zip(points.split(CHUNK), weights.split(CHUNK), strict=True):
        perturbed = z + alpha * (chunk @ A).unsqueeze(1)  # (point, batch, latent)
        logits = f(perturbed.flatten(0, 1))
        losses = sample_cross_entropy(logits, y.repeat(len(chunk))).unflatten(0, (len(chunk), -1))
        changes = (logits.unflatten(0, (len(chunk), -1)) - clean).square().sum(2)
        cross_entropy += weight @ losses
        consistency += weight @ changes
    return Expected(cross_entropy, consistency)


def fitted_order(
    alpha: Float[Tensor, " strength"], remainder: Float[Tensor, " strength"], floor: float = 0.0
) -> float | None:
    """Return the power of alpha with which the remainder falls: the slope of its logarithm over the smallest alphas.

    Remainders of `floor` or less are rounding errors and left out. Return None if fewer than two are left.
    """
    x, y = _smallest(alpha, remainder, floor)
    if len(x) < 2:
        return None
    x = x - x.mean()
    return float((x @ y) / (x @ x))


def local_orders(
    alpha: Float[Tensor, " strength"], remainder: Float[Tensor, " strength"], floor: float = 0.0
) -> list[float]:
    """Return the slopes between neighbours among the smallest alphas, in rising order.

    The slopes are alike if the limit is reached.
    """
    x, y = _smallest(alpha, remainder, floor)
    return (y.diff() / x.diff()).tolist()


def _smallest(alpha: Tensor, remainder: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the smallest alphas whose remainders are above `floor`, and of these remainders."""
    alpha, rank = in_float64(alpha.detach()).sort()
    remainder = in_float64(remainder.detach())[rank]
    kept = remainder > floor
    return alpha[kept][:FITTED].log(), remainder[kept][:FITTED].log()
