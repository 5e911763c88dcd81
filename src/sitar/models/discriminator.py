"""FactorVAE's discriminator: does a latent come from the encoder, or were its axes shuffled?"""

from __future__ import annotations

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn


class Discriminator(nn.Module):
    """The discriminator has linear layers with leaky ReLU, and two outputs."""

    def __init__(self, latent_dim: int, hidden: int = 256, layers: int = 3) -> None:
        super().__init__()
        widths = [latent_dim, *[hidden] * layers]
        hidden_layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
        self.layers = nn.Sequential(*hidden_layers, nn.Linear(hidden, 2))

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch 2"]:
        return self.layers(z)
