"""Sums go over the global batch, so that statistics agree on one process and on many."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def global_sum(local: Tensor) -> Tensor:
    """Add `local`, a tensor without gradient, over all processes. With one process it is `local` itself."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return local
    total = local.clone()
    dist.all_reduce(total)
    return total
