"""Draw numbers for a batch. A process that holds a share of the global batch draws for all of it, and keeps its rows.

So every sample has the numbers that it would have on one process, and no two processes have the same. Where copies of a
model are trained as one, each copy draws from its own generator what it would draw alone (`for_copies`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.autograd import Function

from sitar.functional.reduce import current_share, own_rows


class _Copies:
    """These copies of a model are trained as one. None: there is one model, which draws from torch's own generator."""

    generators: Sequence[torch.Generator] | None = None
    place: Tensor | None = None  # of the copy that a function under vmap computes


@contextmanager
def for_copies(generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Draw for several copies, each from its own generator. A batch has the rows of one copy after those of another."""
    before, _Copies.generators = _Copies.generators, generators
    try:
        yield
    finally:
        _Copies.generators = before


@contextmanager
def for_copy(place: Int[Tensor, ""]) -> Iterator[None]:
    """Draw for the copy at this place, in a function under vmap. A batch has the rows of this copy alone."""
    before, _Copies.place = _Copies.place, place
    try:
        yield
    finally:
        _Copies.place = before


def _of_copies(draw: Callable[..., Tensor], shape: Sequence[int], dim: int = 0, **kind: Any) -> Tensor:
    """Draw for each copy from its generator, as a contiguous tensor. `dim` is the axis of samples."""
    generators, place, sizes = _Copies.generators, _Copies.place, list(shape)
    assert generators is not None

    def of_each() -> list[Tensor]:
        return [draw(sizes, generator=generator, **kind) for generator in generators]

    if place is not None:
        return _Stacked.apply(place, of_each)  # type: ignore[return-value]
    sizes[dim] //= len(generators)
    return torch.cat(of_each(), dim)


class _Stacked(Function):
    """Under vmap over copies, this is what each copy draws. vmap itself would draw for all from one generator."""

    @staticmethod
    def forward(place: Tensor, draw: Callable[[], Sequence[Tensor]]) -> Tensor:
        return draw()[int(place)]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], place: Tensor, draw: Callable[[], Sequence[Tensor]]) -> Any:  # type: ignore[override]
        return torch.stack(list(draw())), 0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        return None, None


def normal_like(batch: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Draw standard normal numbers of the shape, device and dtype of `batch`, whose first axis are samples."""
    if _Copies.generators is not None:
        return _of_copies(torch.randn, batch.shape, dtype=batch.dtype, device=batch.device)
    return own_rows(torch.randn_like(_whole(batch)))


def uniform_like(batch: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Draw numbers between 0 and 1 of the shape, device and dtype of `batch`, whose first axis are samples."""
    return own_rows(whole_uniform_like(_whole(batch)))


def whole_uniform_like(batch: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Draw numbers between 0 and 1 of the shape, device and dtype of `batch`, which is the global batch already."""
    if _Copies.generators is not None:
        return _of_copies(torch.rand, batch.shape, dtype=batch.dtype, device=batch.device)
    return torch.rand_like(batch)


def uniform(count: int, batch: Float[Tensor, "batch *shape"]) -> Float[Tensor, "{count} batch"]:
    """Draw `count` float32 numbers between 0 and 1 for each sample of a batch: (count, sample)."""
    if _Copies.generators is not None:
        return _of_copies(torch.rand, (count, len(batch)), dim=1, device=batch.device)
    return own_rows(torch.rand(count, len(_whole(batch)), device=batch.device), dim=1)


def integers(count: int, batch: Shaped[Tensor, "batch *shape"]) -> Int[Tensor, " batch"]:
    """Draw a number between 0 and `count` - 1 for each sample of a batch."""
    if _Copies.generators is not None:
        return _of_copies(partial(torch.randint, count), (len(batch),), device=batch.device)
    return own_rows(torch.randint(count, (len(_whole(batch)),), device=batch.device))


def _whole(batch: Tensor) -> Tensor:
    """Return a tensor with the rows of the global batch, that lies in memory as `batch` does. It holds no values."""
    share = current_share(batch)
    if share is None:
        return batch
    shape = (share.total, *batch.shape[1:])
    return torch.empty_strided(shape, batch.stride(), dtype=batch.dtype, device=batch.device)
