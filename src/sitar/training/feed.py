"""Inputs that do not lie where a step runs are gathered ahead by a thread, while the steps before them run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sitar.data.rows import Rows, Stored

AHEAD = 4  # batches that are gathered before they are asked for


def needs_feed(x: Stored, device: torch.device) -> bool:
    """Return whether batches of `x` are worth gathering ahead: `x` lies in a file, or not on the device."""
    return isinstance(x, Rows) or x.device.type != device.type


class Feed:
    """Gathers the inputs of one step after the other. For a CUDA device they lie in pinned memory."""

    def __init__(self, x: Stored, device: torch.device) -> None:
        self.rows = x if isinstance(x, Rows) else Rows(x.numpy(), np.arange(len(x)))
        self.pinned = device.type == "cuda"
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self.waiting: deque[Future[Tensor]] = deque()
        self.indices: Iterator[NDArray[Any]] = iter(())

    def begin(self, order: Tensor) -> None:
        """Begin to gather. `order` (step, batch) says which samples each step sees."""
        for gathered in self.waiting:
            gathered.cancel()
        self.indices = iter(order.cpu().numpy())
        self.waiting = deque(self._submit(index) for index in islice(self.indices, AHEAD))

    def next(self) -> Tensor:
        """Return the inputs of the next step, as the split stores them."""
        gathered = self.waiting.popleft().result()
        self.waiting.extend(self._submit(index) for index in islice(self.indices, 1))
        return gathered

    def _submit(self, index: NDArray[Any]) -> Future[Tensor]:
        return self.worker.submit(self._gather, index)

    def _gather(self, index: NDArray[Any]) -> Tensor:
        batch = torch.empty((len(index), *self.rows.shape[1:]), dtype=self.rows.dtype, pin_memory=self.pinned)
        self.rows.gather(self.rows.places[index], out=batch.numpy())
        return batch
