"""Random state as a function of (seed, phase, epoch): nothing of it needs saving, and resuming is exact."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

INIT, ORDER, NOISE = range(3)


def derive_seed(seed: int, *path: int) -> int:
    """A well-mixed seed for one purpose within a run."""
    return int(np.random.SeedSequence((seed, *path)).generate_state(1, np.uint64)[0] >> 1)


def seed_everything(seed: int, *path: int) -> None:
    """Seed torch's generators on every device."""
    torch.manual_seed(derive_seed(seed, *path))


def epoch_order(
    indices: Tensor, batch_size: int, *, seed: int, phase: int, epoch: int, sampling: Tensor | None = None
) -> Tensor:
    """An epoch as (step, batch): every one of `indices` once in random order, or, with `sampling`, as many drawn with
    replacement in proportion to it. The last batch is filled up from the front, so that all batches have one size.
    Drawn on the CPU: the order is the same on every device."""
    generator = torch.Generator().manual_seed(derive_seed(seed, ORDER, phase, epoch))
    if sampling is None:
        shuffled = indices[torch.randperm(len(indices), generator=generator)]
    else:
        shuffled = indices[torch.multinomial(sampling, len(indices), replacement=True, generator=generator)]
    missing = -len(shuffled) % batch_size
    return torch.cat([shuffled, shuffled[:missing]]).view(-1, batch_size)
