"""Encode and decode features instead of images: those of a pretrained network, or a user's own embeddings."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class FeatureEncoder(nn.Module):
    """The encoder has two linear layers with GELU, from d to d/2 and to d/4 (appendix). d/4 is `out_features`.

    With `hidden` both layers have this width instead.
    """

    def __init__(self, features: int, hidden: int | None = None) -> None:
        super().__init__()
        self.features = features
        self.hidden = hidden or max(1, features // 2)
        self.out_features = hidden or max(1, features // 4)
        first, second = nn.Linear(features, self.hidden), nn.Linear(self.hidden, self.out_features)
        self.layers = nn.Sequential(first, nn.GELU(), second, nn.GELU())

    def forward(self, x: Float[Tensor, "batch feature"]) -> Float[Tensor, "batch quarter"]:
        return self.layers(x)


class FeatureDecoder(nn.Module):
    """The decoder is the mirror image of the encoder. It is linear at the end, because features have no bounds."""

    def __init__(self, latent_dim: int, encoder: FeatureEncoder) -> None:
        super().__init__()
        first, second = nn.Linear(latent_dim, encoder.hidden), nn.Linear(encoder.hidden, encoder.features)
        self.layers = nn.Sequential(first, nn.GELU(), second)

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch feature"]:
        return self.layers(z)


class Standardise(nn.Module):
    """Features get mean 0 and variance 1 over the training split, so that beta means the same for every embedding.

    A feature that never changes there becomes 0.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Float[Tensor, " feature"], deviation: Float[Tensor, " feature"]) -> None:
        super().__init__()
        self.register_buffer("mean", mean.clone())  # two networks may share the task
        self.register_buffer("scale", (deviation > 0).float() / deviation.clamp_min(1e-12))

    def forward(self, x: Float[Tensor, "batch feature"]) -> Float[Tensor, "batch feature"]:
        return (x - self.mean) * self.scale
