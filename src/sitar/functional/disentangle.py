"""Estimate the total correlation in two ways. It says how far the latent axes are from independent."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from sitar.functional.draws import whole_uniform_like
from sitar.functional.reduce import gathered, global_mean, own_rows

LOG_2PI = math.log(2 * math.pi)


def gaussian_log_density(
    z: Float[Tensor, "*#shape"], mu: Float[Tensor, "*#shape"], log_var: Float[Tensor, "*#shape"]
) -> Float[Tensor, "*#shape"]:
    """Return log N(z; mu, exp(log_var)) of every element. Shapes are broadcast."""
    return -0.5 * ((z - mu).square() * (-log_var).exp() + log_var + LOG_2PI)


def kl_parts(
    z: Float[Tensor, "batch latent"],
    mu: Float[Tensor, "batch latent"],
    log_var: Float[Tensor, "batch latent"],
    num_train: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Split the KL divergence in three: mutual information of x and z, total correlation, and divergence of each axis.

    This is minibatch weighted sampling (Chen et al., 2018, Eq. S4): q(z) is a mixture of the batch's posteriors over
    `num_train` samples. The parts add up to a one-sample estimate of the whole.
    """
    precise = torch.promote_types(mu.dtype, torch.float32)  # also under mixed precision
    z, mu, log_var = z.to(precise), mu.to(precise), log_var.to(precise)
    posteriors = gathered(mu), gathered(log_var)  # of the global batch
    pairs = gaussian_log_density(z.unsqueeze(1), *(part.unsqueeze(0) for part in posteriors))
    size = math.log(len(posteriors[0]) * num_train)  # pairs are (sample, posterior, axis)
    log_joint = pairs.sum(2).logsumexp(1) - size
    log_axes = (pairs.logsumexp(1) - size).sum(1)
    log_posterior = gaussian_log_density(z, mu, log_var).sum(1)
    log_prior = gaussian_log_density(z, torch.zeros_like(z), torch.zeros_like(z)).sum(1)
    parts = log_posterior - log_joint, log_joint - log_axes, log_axes - log_prior
    return global_mean(parts[0].mean()), global_mean(parts[1].mean()), global_mean(parts[2].mean())


def permute_axes(z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch latent"]:
    """Shuffle each axis over the batch on its own: samples of the product of the marginals (Kim and Mnih, 2018)."""
    batch = gathered(z)
    return own_rows(batch.gather(0, whole_uniform_like(batch).argsort(0)))


def density_ratio(logits: Float[Tensor, "batch 2"]) -> Float[Tensor, ""]:
    """Return the total correlation that a discriminator sees: the mean of log D(joint) - log D(permuted).

    `logits` are those of joint samples.
    """
    return global_mean((logits[:, 0] - logits[:, 1]).mean())


def discrimination(joint: Float[Tensor, "batch 2"], permuted: Float[Tensor, "batch 2"]) -> Float[Tensor, ""]:
    """Return the cross-entropy of a discriminator. Joint samples are class 0, and permuted ones class 1."""
    targets: Int[Tensor, " batch"] = torch.zeros_like(joint[:, 0], dtype=torch.long)
    return global_mean(0.5 * (F.cross_entropy(joint, targets) + F.cross_entropy(permuted, targets + 1)))
