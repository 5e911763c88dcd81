"""Compile the loss of an objective, so that its small operations become few kernels.

The random numbers are those of the loss itself. torch keeps what was compiled in a folder of its own, so that the next
run with the same settings starts sooner. TORCHINDUCTOR_CACHE_DIR puts it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from sitar.data.types import TrainBatch
from sitar.errors import TrainingError, first_line
from sitar.methods.base import Objective


def compiled(objectives: Sequence[Objective]) -> list[Objective]:
    """Return the objectives with losses that are compiled when they are first called.

    What torch has compiled in this process before is forgotten, since it keeps only a few versions of a function.
    """
    torch.compiler.reset()
    options: dict[str, Any] = {"fallback_random": True}
    return [
        replace(one, loss=_explained(torch.compile(one.loss, fullgraph=True, dynamic=False, options=options)))
        for one in objectives
    ]


def _explained(fast: Callable[[TrainBatch], dict[str, Tensor]]) -> Callable[[TrainBatch], dict[str, Tensor]]:
    @wraps(fast)
    def loss(batch: TrainBatch) -> dict[str, Tensor]:
        from torch._dynamo.exc import TorchDynamoException  # here: slow to import

        try:
            return fast(batch)
        except TorchDynamoException as error:
            raise TrainingError(
                f"train.compile=true, and the loss cannot be compiled here: {first_line(error)}. Leave it out."
            ) from error

    return loss
