"""A convolutional encoder and its mirror image serve images of any size and number of channels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from sitar.models.halving import KERNEL, PADDING, STRIDE, Doubling, Halving

_SMALLEST = 7


def default_channels(height: int, width: int) -> tuple[int, ...]:
    """Return the widths of the convolutions, which halve the image until its shorter side is at most 7 pixels.

    28x28 gives the two layers 32-64 of ColorMNIST. 64x64 gives the appendix's four, 32-32-64-128.
    """
    side, depth = min(height, width), 1
    while (side := _halved(side)) > _SMALLEST:
        depth += 1
    return (32, 64, 128)[:depth] if depth <= 3 else (32,) * (depth - 3) + (32, 64, 128)


def _halved(size: int) -> int:
    return (size + 2 * PADDING - KERNEL) // STRIDE + 1


class ConvEncoder(nn.Module):
    """The encoder has strided convolutions with ReLU. Their output is flattened to `out_features`."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int] | None = None) -> None:
        super().__init__()
        inputs, height, width = shape
        widths = tuple(channels) if channels else default_channels(height, width)
        self.sizes = [(height, width)]
        for _ in widths:
            self.sizes.append((_halved(self.sizes[-1][0]), _halved(self.sizes[-1][1])))
        if min(self.sizes[-1]) < 1:
            raise ValueError(f"{len(widths)} convolutions are too many for an image of {height}x{width}")
        self.channels = (inputs, *widths)
        layers: list[nn.Module] = []
        for before, after in pairwise(self.channels):
            layers += [Halving(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.map_shape = (widths[-1], *self.sizes[-1])
        self.out_features = widths[-1] * self.sizes[-1][0] * self.sizes[-1][1]

    def forward(self, x: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch feature"]:
        return self.layers(x)


class ConvDecoder(nn.Module):
    """The decoder mirrors an encoder: a linear layer, transposed convolutions, and a sigmoid at the end."""

    def __init__(self, latent_dim: int, encoder: ConvEncoder) -> None:
        super().__init__()
        self.project = nn.Linear(latent_dim, encoder.out_features)
        layers: list[nn.Module] = [nn.ReLU(), nn.Unflatten(1, encoder.map_shape)]
        widths, sizes = encoder.channels[::-1], encoder.sizes[::-1]
        for i, (before, after) in enumerate(pairwise(widths)):
            extra = (sizes[i + 1][0] - STRIDE * sizes[i][0], sizes[i + 1][1] - STRIDE * sizes[i][1])
            layers += [Doubling(before, after, extra), nn.ReLU()]
        layers[-1] = nn.Sigmoid()
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch channel height width"]:
        return self.layers(self.project(z))
