"""What an axis means, to look at: decoded images along it, and the real images at its two ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sitar.data.base import to_float
from sitar.models import VAE

STEPS = 9  # along an axis
REACH = 2.5  # in standard deviations of the held-out means, to both sides
STARTS = 5  # samples that a traversal starts from, after their mean
ENDS = 8  # real images at each end


def traversal(vae: VAE, mu: Tensor, y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Images (start, step, channel, height, width) and the values of the axis (step,): all other axes stay.

    The first start is the mean of all latents, the others are samples, of each class in turn.
    """
    deviation, mean = torch.std_mean(mu[:, axis])
    values = mean + REACH * deviation * torch.linspace(-1, 1, STEPS)
    starts = torch.cat([mu.mean(0, keepdim=True), mu[_in_turn(y)[:STARTS]]])
    z = starts.unsqueeze(1).repeat(1, STEPS, 1)
    z[:, :, axis] = values
    device = next(vae.parameters()).device
    with torch.no_grad():
        images = vae.decode(z.flatten(0, 1).to(device)).cpu()
    return to_uint8(images.unflatten(0, (len(starts), STEPS))), values


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


def _in_turn(y: Tensor) -> Tensor:
    """Places of samples, the first of each class, then the second of each, and so on."""
    rank = torch.zeros_like(y)
    for c in y.unique():
        members = y == c
        rank[members] = torch.arange(int(members.sum()))
    return (rank * (y.max() + 1) + y).argsort()


def to_uint8(x: Tensor) -> Tensor:
    return x if x.dtype == torch.uint8 else (255 * to_float(x).clamp(0, 1)).round().to(torch.uint8)
