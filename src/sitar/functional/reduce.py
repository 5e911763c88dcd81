"""Sum over the global batch, so that statistics agree on one process and on many."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def global_sum(local: Tensor) -> Tensor:
    """Return the sum of a detached tensor over all processes. Return the tensor itself if there is only one."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return local
    total = local.clone()
    dist.all_reduce(total)
    return total
