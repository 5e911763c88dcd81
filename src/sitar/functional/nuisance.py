"""Find the directions of a latent along which it varies with what is not the label, and keep the label's noise to them.

A nuisance is a number beside every sample, and its direction is its covariance with the latent. A column such as a site
has lost its class means before (`within_classes`): its direction is what moves with the site while the label stays. A
concept is given by examples with and without it, and its direction is the difference of their means. In a training step
sums are those of the global batch.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from sitar.functional.correlation import EPS
from sitar.functional.reduce import batch_sum, global_mean, rows_of


def within_classes(
    values: Float[Tensor, "sample column"], y: Int[Tensor, " sample"], num_classes: int
) -> Float[Tensor, "sample column"]:
    """Subtract from each sample the mean of its class.

    >>> within_classes(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1]), num_classes=2).T
    tensor([[-1.,  1.,  0.]])
    """
    member = one_hot(y, num_classes).to(values.dtype)
    means = batch_sum(member.T @ values) / batch_sum(member.sum(0)).clamp_min(1).unsqueeze(1)
    return values - member @ means


def covariance_within(
    mu: Float[Tensor, "sample latent"],
    y: Int[Tensor, " sample"],
    num_classes: int,
    posterior_variance: Float[Tensor, " latent"],
) -> Float[Tensor, "latent latent"]:
    """Return the covariance of z = mu + noise of the posterior within classes."""
    centred = within_classes(mu, y, num_classes)
    return global_mean(centred.T @ centred / len(mu)) + torch.diag(posterior_variance.clamp_min(EPS))


def nuisance_projection(
    within: Float[Tensor, "latent latent"],
    rows: Float[Tensor, "nuisance latent"],
    doubt: Float[Tensor, "nuisance nuisance"],
) -> Float[Tensor, "latent latent"]:
    """Return P, which maps covariances with the label onto the span of the nuisances' directions: c becomes c P.

    Directions are orthogonal in the metric S^-1, where S is the covariance of the latent within classes. So P is
    S^-1 D^T (D S^-1 D^T + E)^-1 D for directions D. E is how uncertain D is: a direction that is no stronger than
    chance shrinks to half or less, and one that is far stronger is kept whole. If the latent is mapped by any matrix,
    c P is mapped in the same way. If nuisances are mapped, P stays.
    """
    readers, _ = torch.linalg.solve_ex(within, rows.T)  # S^-1 D^T, without a check, which would wait for the device
    strength = rows @ readers
    size = torch.finfo(rows.dtype).eps ** 0.5 * (strength + doubt).diagonal().mean() + EPS
    jitter = size * torch.eye(len(rows), dtype=rows.dtype, device=rows.device)  # columns of words add up to a constant
    return readers @ torch.linalg.solve_ex(strength + doubt + jitter, rows)[0]


def column_rows(
    mu: Float[Tensor, "sample latent"], nuisances: Float[Tensor, "sample nuisance"]
) -> tuple[Float[Tensor, "nuisance latent"], Float[Tensor, "nuisance nuisance"]]:
    """Return the covariance of each nuisance with the latent, and how uncertain these directions are.

    Nuisances have mean 0. In units of the variances, covariances of chance in n samples form a matrix whose largest
    squared singular value is (sqrt(nuisances) + sqrt(axes))^2 / n (Marchenko and Pastur).
    """
    chance = (nuisances.shape[1] ** 0.5 + mu.shape[1] ** 0.5) ** 2 / rows_of(mu)
    centred = mu - global_mean(mu.mean(0))
    return global_mean(nuisances.T @ centred / len(mu)), chance * global_mean(nuisances.T @ nuisances / len(mu))


def concept_rows(
    examples: Float[Tensor, "example latent"], contrasts: Float[Tensor, "concept example"]
) -> tuple[Float[Tensor, "concept latent"], Float[Tensor, "concept concept"]]:
    """Return half the difference of means with and without each concept, and how uncertain these directions are.

    A row of `contrasts` has 1 / n for the n examples with a concept, -1 / n for those without, and else 0.
    """
    doubt = examples.shape[1] / 4 * contrasts.square().sum(1)
    return contrasts @ examples / 2, torch.diag(doubt)
