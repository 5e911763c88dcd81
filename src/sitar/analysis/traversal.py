"""What an axis means, to look at: decoded images along it, and the real images at its two ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from sitar.data.types import to_float
from sitar.models import VAE

STEPS = 9  # along an axis
REACH = 2.5  # in standard deviations of the held-out means, to both sides
STARTS = 5  # samples that a traversal starts from, after their mean
ENDS = 8  # real images at each end
MOST_SIDE = 64  # pixels of an image that is kept for reports


def traversal(vae: VAE, mu: Tensor, y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Images (start, step, channel, height, width) and the values of the axis (step,): all other axes stay.

    The first start is the mean of all latents, the others are samples, of each class in turn.
    """
    values = reach(mu[:, axis], STEPS)
    starts = torch.cat([mu.mean(0, keepdim=True), mu[in_turn(y)[:STARTS]]])
    return decoded(vae, along(starts, axis, values)), values


def reach(mu: Tensor, steps: int) -> Tensor:
    """Values (step,) that one axis is given, from its posterior means (sample,)."""
    deviation, mean = torch.std_mean(mu)
    return mean + REACH * deviation * torch.linspace(-1, 1, steps)


def along(starts: Tensor, axis: int, values: Tensor) -> Tensor:
    """Latents (start, step, axis): each start with one axis at each of the values, all others as they were."""
    z = starts.unsqueeze(1).repeat(1, len(values), 1)
    z[:, :, axis] = values
    return z


def decoded(vae: VAE, z: Tensor) -> Tensor:
    """Images (start, step, channel, height, width) of latents (start, step, axis)."""
    device = next(vae.parameters()).device
    with torch.no_grad():
        images = vae.decode(z.flatten(0, 1).to(device)).cpu()
    return to_uint8(images.unflatten(0, z.shape[:2]))


def extremes(x: Tensor, value: Tensor, y: Tensor, classes: Sequence[int]) -> Tensor:
    """Real images (class, end, image, channel, height, width): lowest first, then those with the highest values.

    Both ends have half of the smallest class at most, so that no image stands at both.
    """
    count = min(ENDS, *(int((y == c).sum()) // 2 for c in classes))
    rows = []
    for c in classes:
        members = (y == c).nonzero().squeeze(1)
        members = members[value[members].argsort()]
        rows.append(torch.stack([x[members[:count]], x[members[len(members) - count :]]]))
    return to_uint8(torch.stack(rows))


def in_turn(y: Tensor) -> Tensor:
    """Places of samples, the first of each class, then the second of each, and so on."""
    rank = torch.zeros_like(y)
    for c in y.unique():
        members = y == c
        rank[members] = torch.arange(int(members.sum()))
    return (rank * (y.max() + 1) + y).argsort()


def shrunk(x: Tensor, most: int) -> Tensor:
    """Images (..., channel, height, width) as uint8, their longer side at most so many pixels."""
    height, width = x.shape[-2:]
    if max(height, width) <= most or x.numel() == 0:
        return to_uint8(x)
    size = [max(1, round(side * most / max(height, width))) for side in (height, width)]
    flat = to_float(x).reshape(-1, *x.shape[-3:])
    small = interpolate(flat, size, mode="bilinear", antialias=True)
    return to_uint8(small.reshape(*x.shape[:-2], *size))


def to_uint8(x: Tensor) -> Tensor:
    return x if x.dtype == torch.uint8 else (255 * to_float(x).clamp(0, 1)).round().to(torch.uint8)
