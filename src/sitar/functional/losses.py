"""Compute the terms of the objective (Eq. 1 and 4). Each is a mean over the global batch of a sum over features."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from sitar.functional.draws import normal_like
from sitar.functional.reduce import global_mean


def reparameterise(
    mu: Float[Tensor, "batch latent"], log_var: Float[Tensor, "batch latent"]
) -> Float[Tensor, "batch latent"]:
    """Draw a sample of N(mu, exp(log_var)) through which the gradient reaches both."""
    return mu + torch.exp(0.5 * log_var) * normal_like(mu)


def reconstruction(x_hat: Float[Tensor, "batch *shape"], x: Float[Tensor, "batch *shape"]) -> Float[Tensor, ""]:
    """Return the squared error, **summed** over pixels and averaged over the batch.

    With a mean over pixels, beta would act thousands of times stronger, and the posterior would collapse.
    """
    return global_mean((x_hat - x).square().flatten(1).sum(1).mean())


def gaussian_kl(mu: Float[Tensor, "batch latent"], log_var: Float[Tensor, "batch latent"]) -> Float[Tensor, ""]:
    """Return KL(N(mu, exp(log_var)) || N(0, I)) in nats, summed over axes, averaged over the batch.

    >>> gaussian_kl(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2))
    tensor(0.5000)
    """
    return global_mean(0.5 * (mu.square() + log_var.exp() - 1 - log_var).sum(1).mean())


def cross_entropy(
    logits: Float[Tensor, "batch classes"],
    y: Int[Tensor, " batch"],
    class_weight: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    """Return the cross-entropy in nats. With class weights it is the weighted mean: their scale does not matter."""
    weight = None if class_weight is None else class_weight[y]
    return global_mean(F.cross_entropy(logits, y, weight=class_weight), weight)


def sample_cross_entropy(logits: Float[Tensor, "batch classes"], y: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Return the cross-entropy of every sample, in nats."""
    return F.cross_entropy(logits, y, reduction="none")


def weighted_mean(values: Float[Tensor, " batch"], weight: Float[Tensor, " batch"] | None = None) -> Float[Tensor, ""]:
    """Return the mean over the batch. With weights it is sum(w v) / sum(w), so that their scale does not matter."""
    return global_mean(values.mean() if weight is None else (weight * values).sum() / weight.sum(), weight)


def consistency(clean: Float[Tensor, "batch classes"], perturbed: Float[Tensor, "batch classes"]) -> Float[Tensor, ""]:
    """Return |f(z) - f(zbar)|^2, summed over classes, averaged over the batch. The gradient flows into both.

    >>> consistency(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]))
    tensor(5.)
    """
    return global_mean((clean - perturbed).square().sum(1).mean())
