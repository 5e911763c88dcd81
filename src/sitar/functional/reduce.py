"""Compute over the global batch, of which every process holds a share, so that many processes agree with one.

A training step of several processes says which rows of the global batch are its own (`sharing`). Within it, sums and
means are those of the global batch, and rows can be gathered and taken apart again. Outside of it, and on one process,
these functions return what they are given. The gradient of a sum reaches all processes: where each of them minimises
the same loss, the mean of their gradients is the gradient of this loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from sitar.errors import LostProcessError


class Share(NamedTuple):
    """These rows of the global batch belong to this process."""

    start: int
    stop: int
    total: int  # rows of the global batch

    @property
    def rows(self) -> int:
        return self.stop - self.start


class _Step:
    """The step that runs holds this share. None: its batch is a whole one, or no step runs."""

    share: Share | None = None
    apart: bool = False  # whether processes compute apart from each other where no step runs


@contextmanager
def sharing(share: Share) -> Iterator[None]:
    """Say which rows of the global batch all batches hold in this context."""
    before, _Step.share = _Step.share, share
    try:
        yield
    finally:
        _Step.share = before


@contextmanager
def together_in_steps() -> Iterator[None]:
    """Say that outside of `sharing` each process computes for itself, such as a fit to all training samples."""
    _Step.apart = True
    try:
        yield
    finally:
        _Step.apart = False


def current_share(batch: Tensor) -> Share | None:
    """Return which rows of the global batch `batch` holds. None: all of them."""
    share = _Step.share
    if share is not None and len(batch) != share.rows:
        raise ValueError(f"these {len(batch)} rows are no batch: a batch has {share.rows} on this process")
    return share


class _Sum(torch.autograd.Function):
    """The loss of every process depends on the sum, so its gradient is a sum over processes as well."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        return all_reduced(local)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Sum.apply(gradients[0])  # type: ignore[reportReturnType]


def all_reduced(local: Tensor) -> Tensor:
    """Return the sum over all processes, without gradient. A process that is gone raises a LostProcessError."""
    total = local.detach().clone(memory_format=torch.contiguous_format)
    try:
        dist.all_reduce(total)
    except RuntimeError as error:
        raise LostProcessError from error
    return total


def global_sum(local: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes. Return the tensor itself if there is only one.

    In a loop of a user's own, all processes are those of torch.distributed.
    """
    apart = _Step.apart or not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
    if _Step.share is None and apart:
        return local
    return _Sum.apply(local)  # type: ignore[reportReturnType]


def batch_sum(local: Tensor) -> Tensor:
    """Return the sum over the global batch, of which `local` is the sum over this process' rows."""
    return local if _Step.share is None else global_sum(local)


def global_mean(local: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean over the global batch, of which `local` is the mean over this process' rows.

    `weight` holds the weights of these rows if the mean is a weighted one.
    """
    if (share := _Step.share) is None:
        return local
    part = share.rows / share.total if weight is None else weight.sum() / batch_sum(weight.sum())
    return batch_sum(local.to(torch.promote_types(local.dtype, torch.float32)) * part)


def rows_of(batch: Tensor) -> int:
    """Return how many rows the global batch has, of which `batch` is this process' part."""
    share = current_share(batch)
    return len(batch) if share is None else share.total


def gathered(rows: Tensor) -> Tensor:
    """Return the rows of the whole global batch, in its order."""
    share = current_share(rows)
    if share is None:
        return rows
    kind = torch.uint8 if rows.dtype == torch.bool else rows.dtype
    before, after = (rows.new_zeros((n, *rows.shape[1:]), dtype=kind) for n in (share.start, share.total - share.stop))
    return batch_sum(torch.cat([before, rows.to(kind), after])).to(rows.dtype)


def own_rows(batch: Tensor, dim: int = 0) -> Tensor:
    """Return this process' rows of something that has a row for each of the global batch."""
    share = _Step.share
    return batch if share is None else batch.narrow(dim, share.start, share.rows)
