"""Classify with a diffusion model: the forward process, and the error of the predicted noise under each class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sitar.functional.draws import uniform

Denoiser = Callable[[Tensor, Tensor, Tensor], Tensor]  # (x_t, t, y) -> predicted noise, all with a batch axis


def noised(
    x: Float[Tensor, "batch *shape"], noise: Float[Tensor, "batch *shape"], alpha_bar: Float[Tensor, " batch"]
) -> Float[Tensor, "batch *shape"]:
    """Return x_t = sqrt(alpha_bar) x + sqrt(1 - alpha_bar) noise. Each sample has its own alpha_bar."""
    alpha_bar = alpha_bar.reshape(-1, *[1] * (x.ndim - 1))
    return alpha_bar.sqrt() * x + (1 - alpha_bar).sqrt() * noise


def random_timesteps(like: Float[Tensor, "batch *shape"], steps: int) -> Int[Tensor, " batch"]:
    """Draw a uniform step of 0 .. steps - 1 for each sample. `rand` differs between copies under vmap."""
    (drawn,) = uniform(1, like)
    return (drawn * steps).long().clamp_max(steps - 1)  # in float32 the product may round up to `steps`


def even_timesteps(steps: int, count: int) -> Int[Tensor, " count"]:
    """Return the middle of each of `count` equal parts of 0 .. steps - 1. They increase, and none comes twice."""
    if not 1 <= count <= steps:
        raise ValueError(f"{count} distinct timesteps cannot be taken from {steps}")
    return (2 * torch.arange(count) + 1) * steps // (2 * count)


def antithetic_noise(count: int, shape: tuple[int, ...]) -> Float[Tensor, "count *shape"]:
    """Draw standard normal noise in which every second draw is minus the one before.

    Part of the difference between two classes' errors is odd in the noise and has mean zero. For Gaussian classes and
    the optimal denoiser, nothing else varies. This part cancels between e and -e: exactly at one t, nearly at
    neighbouring ones.
    """
    noise = torch.randn((count + 1) // 2, *shape)
    return torch.stack([noise, -noise], 1).flatten(0, 1)[:count].clone()


def class_errors(
    denoiser: Denoiser,
    x: Float[Tensor, "batch *shape"],
    num_classes: int,
    t: Int[Tensor, " pair"],
    noise: Float[Tensor, "pair *shape"],
    alphas_cumprod: Float[Tensor, " step"],
) -> Float[Tensor, "batch classes"]:
    """Return the squared error of the predicted noise for each class, **summed** over pixels, averaged over pairs.

    Features are summed like pixels. Every class and every input has the same pairs (t, noise), so what they share
    cancels when classes are compared. Each call of the denoiser holds all classes of all inputs, `batch * num_classes`
    samples.
    """
    copies = x.repeat_interleave(num_classes, 0)
    y = torch.arange(num_classes, device=x.device).repeat(len(x))
    total = x.new_zeros(len(copies))
    for step, draw in zip(t.unbind(), noise.unbind(), strict=True):
        steps, draws = step.expand(len(copies)), draw.expand_as(copies)
        predicted = denoiser(noised(copies, draws, alphas_cumprod[steps]), steps, y)
        total = total + (predicted.to(x.dtype) - draws).square().flatten(1).sum(1)
    return total.reshape(len(x), num_classes) / len(t)
