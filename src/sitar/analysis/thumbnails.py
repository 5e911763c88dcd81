"""Images are kept for reports as uint8, and no larger than a report shows them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sitar.data.types import to_float

MOST_SIDE = 64  # pixels of the longer side


def pixels(x: Tensor) -> Tensor:
    """Return images as uint8. Floats are taken to be in [0, 1]."""
    return x if x.dtype == torch.uint8 else (255 * to_float(x).clamp(0, 1)).round().to(torch.uint8)


def thumbnails(x: Tensor) -> Tensor:
    """Shrink images (..., channel, height, width) until their longer side has at most MOST_SIDE pixels."""
    height, width = x.shape[-2:]
    if max(height, width) <= MOST_SIDE or x.numel() == 0:
        return pixels(x)
    size = [max(1, round(side * MOST_SIDE / max(height, width))) for side in (height, width)]
    flat = to_float(x).reshape(-1, *x.shape[-3:])
    small = interpolate(flat, size, mode="bilinear", antialias=True)
    return pixels(small.reshape(*x.shape[:-2], *size))
