"""Show what an axis means: decoded images along it, and the real images at its two ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sitar.analysis.samples import in_turn
from sitar.analysis.thumbnails import pixels
from sitar.models import VAE

STEPS = 9  # along an axis
REACH = 2.5  # in standard deviations of the held-out means, to both sides
STARTS = 5  # samples that a traversal starts from, after their mean
ENDS = 8  # real images at each end


def traversal(vae: VAE, mu: Tensor, y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Decode images (start, step, channel, height, width) while one axis takes the values (step,) and all others stay.

    The first start is the mean of all latents, the others are samples, of each class in turn.
    """
    values = reach(mu[:, axis], STEPS)
    starts = torch.cat([mu.mean(0, keepdim=True), mu[in_turn(y)[:STARTS]]])
    return decoded(vae, along(starts, axis, values)), values


def reach(mu: Tensor, steps: int) -> Tensor:
    """Return the values (step,) that one axis is given, from its posterior means (sample,)."""
    deviation, mean = torch.std_mean(mu)
    return mean + REACH * deviation * torch.linspace(-1, 1, steps)


def along(starts: Tensor, axis: int, values: Tensor) -> Tensor:
    """Return latents (start, step, axis): each start with one axis at each of the values, all others as they were."""
    z = starts.unsqueeze(1).repeat(1, len(values), 1)
    z[:, :, axis] = values
    return z


def decoded(vae: VAE, z: Tensor) -> Tensor:
    """Decode latents (start, step, axis) to images (start, step, channel, height, width)."""
    device = next(vae.parameters()).device
    with torch.no_grad():
        images = vae.decode(z.flatten(0, 1).to(device)).cpu()
    return pixels(images.unflatten(0, z.shape[:2]))


def extremes(x: Tensor, value: Tensor, y: Tensor, classes: Sequence[int]) -> Tensor:
    """Return the real images (class, end, image, channel, height, width) with the lowest and with the highest values.

    Both ends have half of the smallest class at most, so that no image stands at both.
    """
    count = min(ENDS, *(int((y == label).sum()) // 2 for label in classes))
    rows = []
    for label in classes:
        members = (y == label).nonzero().squeeze(1)
        members = members[value[members].argsort()]
        rows.append(torch.stack([x[members[:count]], x[members[len(members) - count :]]]))
    return pixels(torch.stack(rows))
