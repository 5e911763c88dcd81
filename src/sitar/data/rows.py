"""Inputs that are many stay where they are, most often in a file on the disk. Rows are copied when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sitar.integrity import BlockSums, RowSums

HELD = 2**28  # bytes of a split's inputs, up to which they are copied into memory
PART = 2**26  # bytes that are copied at a time from the disk to a device


class Rows:
    """Some rows of an array, in an order of their own. They read like a tensor, and only what is asked for is copied.

    The array may be mapped from a file: then its pages lie in the page cache of the system, which gives them back when
    a program needs the memory. `sums` are its checksums, where there are any: each row is compared once.
    """

    device = torch.device("cpu")

    def __init__(self, array: NDArray[Any], places: NDArray[np.int64], sums: RowSums | BlockSums | None = None) -> None:
        self.array, self.places, self.sums = np.asarray(array), places, sums
        self.shape = torch.Size((len(places), *array.shape[1:]))
        self.ndim = array.ndim
        self.dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        self.nbytes = self.shape.numel() * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Tensor:
        """Copy a row, or the rows of a slice, of a tensor or of a list."""
        places = self.places[index.cpu().numpy() if isinstance(index, Tensor) else index]
        return torch.from_numpy(self.gather(places))

    def gather(self, places: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Copy rows of the array by their places in it."""
        rows = np.take(self.array, places, axis=0, out=out, mode="raise" if out is None else "clip")
        if self.sums is not None:
            self.sums.check(places, rows)
        return rows

    def select(self, index: Tensor) -> Rows:
        """Return some of these rows. Nothing is copied."""
        return Rows(self.array, self.places[index.cpu().numpy()], self.sums)

    def split(self, size: int) -> Iterator[Tensor]:
        """Copy all rows, so many at a time."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def to(self, device: torch.device) -> Tensor | Rows:
        """Copy all rows to another device. On the CPU they stay where they are."""
        if device.type == "cpu":
            return self
        copied, start = torch.empty(self.shape, dtype=self.dtype, device=device), 0
        for part in self.split(max(1, PART * len(self) // max(1, self.nbytes))):
            copied[start : start + len(part)] = part.to(device)
            start += len(part)
        return copied


Stored = Tensor | Rows
"""Inputs as a split stores them."""


def select(x: Stored, index: Tensor) -> Stored:
    """Return some of the inputs that a split stores. Those that are many are not copied."""
    return x.select(index) if isinstance(x, Rows) else x[index.to(x.device)]


def rows_at(x: Stored, index: Tensor) -> Tensor:
    """Copy the inputs at these places, where they lie."""
    place = index.to(x.device)
    return x.index_select(0, place) if isinstance(x, Tensor) else x[place]


def stored_rows(
    inputs: NDArray[Any] | Tensor, places: NDArray[np.int64], sums: RowSums | BlockSums | None = None
) -> Stored:
    """Return some rows as a split stores them. Many are never copied, nor are few that lie side by side in memory."""
    array = inputs.numpy() if isinstance(inputs, Tensor) else inputs
    rows = Rows(array, places, sums)
    if rows.nbytes > HELD:
        return rows
    if array.flags.writeable and len(places) and (np.diff(places) == 1).all():
        return torch.from_numpy(array[places[0] : places[-1] + 1])
    return rows[:]
