"""Random state follows from (seed, phase, epoch), so none of it needs saving, and a resumed run is exact."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

INIT, ORDER, NOISE = range(3)
BLOCK = 256  # neighbours that are read together
WINDOW = 256  # blocks whose samples are mixed


def derive_seed(seed: int, *path: int) -> int:
    """Return a well-mixed seed for one purpose within a run."""
    return int(np.random.SeedSequence((seed, *path)).generate_state(1, np.uint64)[0] >> 1)


def seed_everything(seed: int, *path: int) -> None:
    """Seed torch's generators on every device."""
    torch.manual_seed(derive_seed(seed, *path))


def epoch_order(
    indices: Tensor,
    batch_size: int,
    *,
    seed: int,
    phase: int,
    epoch: int,
    sampling: Tensor | None = None,
    shuffle: Literal["samples", "blocks"] = "samples",
) -> Tensor:
    """Return which samples each step of an epoch sees, as (step, batch).

    Without `sampling`, every one of `indices` comes once, in random order. With it, as many are drawn with replacement,
    in proportion to `sampling`. If blocks are shuffled, samples that are neighbours come soon after each other, so that
    a disk reads them together. The last batch is filled up from the front, so that all batches have one size. The
    order is drawn on the CPU, so that it is the same on every device.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, ORDER, phase, epoch))
    if sampling is None and shuffle == "blocks":
        shuffled = indices[_block_order(len(indices), generator)]
    elif sampling is None:
        shuffled = indices[torch.randperm(len(indices), generator=generator)]
    else:
        shuffled = indices[torch.multinomial(sampling, len(indices), replacement=True, generator=generator)]
    missing = -len(shuffled) % batch_size
    return torch.cat([shuffled, shuffled[:missing]]).view(-1, batch_size)


def _block_order(size: int, generator: torch.Generator) -> Tensor:
    """Return the blocks of neighbours in random order, with the samples of some blocks after the other mixed."""
    blocks = torch.randperm(-(-size // BLOCK), generator=generator)
    places = (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
    windows = places[places < size].split(BLOCK * WINDOW)
    return torch.cat([window[torch.randperm(len(window), generator=generator)] for window in windows])
