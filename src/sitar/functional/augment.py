"""Draw random views of a batch of images, on the device that holds them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from sitar.functional.draws import uniform

SCALE = (0.7, 1.0)  # share of the area that a crop keeps
RATIO = 4 / 3  # largest ratio of its sides


def crop_and_flip(x: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch channel height width"]:
    """Crop each image at random, resize the crop to the image, and flip half of them left to right.

    This is torchvision's RandomResizedCrop with two differences. The ratio of the sides is drawn among those that fit
    into the image, where torchvision draws again. Pixels are interpolated without smoothing, because crops are hardly
    smaller than the image.
    """
    area, log_ratio, across, down, side = uniform(5, x)
    area = SCALE[0] + (SCALE[1] - SCALE[0]) * area
    fits = (-area.log()).clamp_max(math.log(RATIO))
    stretch = torch.exp((2 * log_ratio - 1) * fits / 2)
    width, height = area.sqrt() * stretch, area.sqrt() / stretch
    flip = torch.where(side < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(area)
    rows = [
        torch.stack([width * flip, zero, (1 - width) * (2 * across - 1)], 1),
        torch.stack([zero, height, (1 - height) * (2 * down - 1)], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid.to(x.dtype), mode="bilinear", padding_mode="border", align_corners=False)
