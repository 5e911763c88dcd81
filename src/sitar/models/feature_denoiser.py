"""Predict the noise in features of a known class, as the U-Net does in images."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

WAVES = 64  # sines, and as many cosines, that tell the steps apart
SLOWEST = 10_000  # steps in which the slowest of them turns by one radian


class FeatureDenoiser(nn.Module):
    """The denoiser is an MLP. It predicts the noise in features `x` at step `t` for class `y`.

    For features of mean 0 and variance 1 the best linear prediction is sqrt(1 - alpha_bar) x, and what it misses has
    the variance alpha_bar. The MLP learns what it misses, at the scale of 1. So it may be narrower than the features.
    """

    waves: Tensor
    alphas_cumprod: Tensor

    def __init__(
        self, features: int, num_classes: int, alphas_cumprod: Float[Tensor, " step"], width: int, layers: int
    ) -> None:
        super().__init__()
        frequencies = torch.exp(-math.log(SLOWEST) * torch.arange(WAVES) / WAVES)
        self.register_buffer("waves", frequencies, persistent=False)
        self.register_buffer("alphas_cumprod", alphas_cumprod.clone(), persistent=False)
        self.step = nn.Sequential(nn.Linear(2 * WAVES, width), nn.GELU(), nn.Linear(width, width))
        self.label = nn.Embedding(num_classes, width)
        self.enter = nn.Linear(features, width)
        self.layers = nn.ModuleList(ConditionedLayer(width) for _ in range(layers))
        self.leave = nn.Linear(width, features)

    def forward(
        self, x: Float[Tensor, "batch feature"], t: Int[Tensor, " batch"], y: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch feature"]:
        angles = t.unsqueeze(1) * self.waves
        condition = self.step(torch.cat([angles.sin(), angles.cos()], 1)) + self.label(y)
        hidden = self.enter(x)
        for layer in self.layers:
            hidden = layer(hidden, condition)
        alpha_bar = self.alphas_cumprod[t].unsqueeze(1)
        return (1 - alpha_bar).sqrt() * x + alpha_bar.sqrt() * self.leave(hidden)


class ConditionedLayer(nn.Module):
    """The layer adds to its input what it computes of the input and the condition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first, self.condition, self.last = (nn.Linear(width, width) for _ in range(3))

    def forward(
        self, hidden: Float[Tensor, "batch width"], condition: Float[Tensor, "batch width"]
    ) -> Float[Tensor, "batch width"]:
        mixed = self.first(self.norm(hidden)) + self.condition(condition)
        return hidden + self.last(nn.functional.gelu(mixed))
