"""Measure simple properties of images: colour, light, sharpness, borders and corners, and their principal components.

Each property is a small array of numbers. A property of several numbers, such as a colour, is one thing to a reader.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, conv2d

from sitar.data.rows import Stored
from sitar.data.types import to_float
from sitar.functional.precision import in_float64

AT_ONCE = 500  # images that are measured together
EDGE = 8  # a corner or an edge is this part of the side: an eighth
LEVELS = 8  # of each channel, where the most frequent colour of the border is looked for
SMALL = 16  # pixels of the side of images whose principal components are taken
COMPONENTS = 10
MOST_FEATURES = 64  # of which each is looked at alone
GRAY = (0.299, 0.587, 0.114)  # of red, green and blue in a gray image (ITU-R BT.601)

Properties = dict[str, NDArray[np.float64]]  # by name (sample, number)


def image_properties(x: Tensor) -> Properties:
    """Measure images (sample, channel, height, width) as a split stores them."""
    small = torch.cat([adaptive_avg_pool2d(to_float(chunk), SMALL) for chunk in x.split(AT_ONCE)])
    return named_properties(x) | _components(small.flatten(1))


def named_properties(x: Stored) -> Properties:
    """Measure what has a name of its own: all properties but the principal components."""
    parts = [_measure(to_float(chunk.cpu())) for chunk in x.split(AT_ONCE)]
    return {name: in_float64(torch.cat([part[name] for part in parts])).numpy() for name in parts[0]}


def feature_properties(x: Tensor, names: Sequence[str] = ()) -> Properties:
    """Take features (sample, feature) one by one, if there are not too many, and their principal components."""
    x = in_float64(x)
    names = names or [f"feature {i}" for i in range(x.shape[1])]
    single = {name: x[:, [i]].numpy() for i, name in enumerate(names)} if x.shape[1] <= MOST_FEATURES else {}
    return single | _components((x - x.mean(0)) / x.std(0, correction=0).clamp_min(1e-12))


def _measure(x: Tensor) -> dict[str, Tensor]:
    """Measure what is local first: where a corner and the whole image tell the same, the corner is named."""
    channels, height, width = x.shape[1:]
    down, across = max(1, height // EDGE), max(1, width // EDGE)
    top, bottom, left, right = slice(down), slice(height - down, None), slice(across), slice(width - across, None)
    found = {
        "top left corner": _patch(x[:, :, top, left]),
        "top right corner": _patch(x[:, :, top, right]),
        "bottom left corner": _patch(x[:, :, bottom, left]),
        "bottom right corner": _patch(x[:, :, bottom, right]),
        "top edge": _patch(x[:, :, top]),
        "bottom edge": _patch(x[:, :, bottom]),
        "left edge": _patch(x[..., left]),
        "right edge": _patch(x[..., right]),
    }
    inner = slice(down, height - down)
    edges = [x[:, :, top], x[:, :, bottom], x[:, :, inner, left], x[:, :, inner, right]]
    border = torch.cat([edge.flatten(2) for edge in edges], 2)
    found |= {"background": _most_frequent(border), "border": border.mean(2)}
    light = (x * torch.tensor(GRAY).view(3, 1, 1)).sum(1) if channels == 3 else x.mean(1)
    if channels > 1:
        found["mean colour" if channels == 3 else "mean of each channel"] = x.mean((2, 3))
    if channels == 3:
        high, low = x.amax(1), x.amin(1)
        found["saturation"] = ((high - low) / high.clamp_min(1 / 255)).mean((1, 2)).unsqueeze(1)
    whole = {
        "brightness": light.mean((1, 2)),
        "contrast": light.flatten(1).std(1, correction=0),
        "sharpness": _sharpness(light),
    }
    return found | {name: value.unsqueeze(1) for name, value in whole.items()}


def _patch(patch: Tensor) -> Tensor:
    """Return the mean of each channel, and the darkest and the brightest value: a small mark moves the mean little."""
    return torch.cat([patch.mean((2, 3)), torch.stack([patch.amin((1, 2, 3)), patch.amax((1, 2, 3))], 1)], 1)


def _sharpness(light: Tensor) -> Tensor:
    """Compute the logarithm of the variance of the Laplacian: low where an image is blurred."""
    if min(light.shape[1:]) < 4:
        return torch.zeros(len(light))
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]).view(1, 1, 3, 3)
    return conv2d(light.unsqueeze(1), kernel).flatten(1).var(1).add(1e-8).log()


def _most_frequent(border: Tensor) -> Tensor:
    """Return the mean of the border's pixels (sample, channel, pixel) that have its most frequent colour.

    Colours are compared on a few levels of each channel, of the first three.
    """
    level = (border[:, :3] * LEVELS).long().clamp_max(LEVELS - 1)
    code = (level * LEVELS ** torch.arange(level.shape[1]).view(1, -1, 1)).sum(1)
    counts = torch.zeros(len(border), LEVELS ** level.shape[1]).scatter_add_(1, code, torch.ones_like(border[:, 0]))
    chosen = (code == counts.argmax(1, keepdim=True)).unsqueeze(1).float()
    return (border * chosen).sum(2) / chosen.sum(2)


def _components(x: Tensor) -> Properties:
    """Project rows on their first principal components."""
    x = in_float64(x)
    x = x - x.mean(0)
    _, directions = torch.linalg.eigh(x.T @ x / len(x))
    kept = directions.flip(1)[:, : min(COMPONENTS, x.shape[1])]
    return {f"principal component {i + 1}": column.unsqueeze(1).numpy() for i, column in enumerate((x @ kept).T)}
