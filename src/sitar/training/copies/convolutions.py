"""Compute stacked convolutions, by torch as grouped convolutions or as batched matrix products.

Under vmap the copies of a convolution are one grouped convolution. Libraries are slow at these if groups are small. The
same convolution is a product of patches and weights, which is a batched matrix product over copies. Here its gradients
are products of patches too, so that nothing is scattered. Both ways give the same result up to rounding. `WAYS` holds
them, and a trial of a few steps chooses (`trial.py`). To add a way, add a function here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from sitar.models.halving import Doubling, Halving

Way = Callable[[nn.Module], None]


def grouped(module: nn.Module) -> None:
    """Leave convolutions to torch."""


def patches(module: nn.Module) -> None:
    """Have the convolutions of a module that halve and double images be matrix products."""
    for layer in module.modules():
        if isinstance(layer, Halving):
            layer.forward = partial(_halve, layer)  # type: ignore[method-assign]
        elif isinstance(layer, Doubling) and not any(layer.output_padding):
            layer.forward = partial(_double, layer)  # type: ignore[method-assign]


WAYS: dict[str, Way] = {"grouped": grouped, "patches": patches}


@contextmanager
def computed(way: str, module: nn.Module) -> Iterator[None]:
    """Have the convolutions of a module be computed in this way."""
    WAYS[way](module)
    try:
        yield
    finally:
        for layer in module.modules():
            if isinstance(layer, Halving | Doubling):
                layer.__dict__.pop("forward", None)


def _halve(layer: Halving, x: Tensor) -> Tensor:
    if any(size % 2 for size in x.shape[-2:]):
        return type(layer).forward(layer, x)
    return _biased(_Halve.apply(x, layer.weight), layer.bias)  # type: ignore[arg-type]


def _double(layer: Doubling, x: Tensor) -> Tensor:
    return _biased(_Double.apply(x, layer.weight), layer.bias)  # type: ignore[arg-type]


def _biased(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + bias.to(y.dtype)[:, None, None]


class _Halve(Function):
    """The convolution of kernel 4, stride 2 and padding 1. Weights are (after, before, 4, 4)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        x, weight = _cast(x, weight)
        return (_squares(x) @ _of_squares(weight)).movedim(-1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        of_x = _Double.apply(grad, weight).to(x.dtype) if ctx.needs_input_grad[0] else None  # type: ignore[union-attr]
        return of_x, _WeightGradient.apply(x, grad).to(weight.dtype)  # type: ignore[union-attr]


class _Double(Function):
    """The transposed convolution of kernel 4, stride 2 and padding 1. Weights are (before, after, 4, 4)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        x, weight = _cast(x, weight)
        places = _neighbours(x) @ _of_neighbours(weight)  # four pixels for each one: sample, row, column, 4 * after
        places = places.unflatten(-1, (2, 2, weight.shape[1]))
        return places.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        of_x = _Halve.apply(grad, weight).to(x.dtype) if ctx.needs_input_grad[0] else None  # type: ignore[union-attr]
        return of_x, _WeightGradient.apply(grad, x).to(weight.dtype)  # type: ignore[union-attr]


class _WeightGradient(Function):
    """The sum of products of a large image's squares with a small image's pixels: (small, large, 4, 4)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(large: Tensor, small: Tensor) -> Tensor:
        large, small = _cast(large, small)
        product = small.movedim(1, -1).flatten(0, 2).mT @ _squares(large).flatten(0, 2)
        return product.unflatten(1, (4, 4, large.shape[1])).permute(0, 3, 1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        large, small = ctx.saved_tensors
        return _Double.apply(small, grad).to(large.dtype), _Halve.apply(large, grad).to(small.dtype)  # type: ignore[union-attr]


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return what autocast would compute with."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        kind = torch.promote_types(tensors[0].dtype, tensors[1].dtype)
        return tuple(tensor.to(kind) for tensor in tensors)
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _squares(x: Tensor) -> Tensor:
    """Return the 4x4 square around every second pixel: (sample, row, column, 16 * channel)."""
    squares = F.pad(x.movedim(1, -1), (0, 0, 1, 1, 1, 1)).unfold(1, 4, 2).unfold(2, 4, 2)
    return squares.permute(0, 1, 2, 4, 5, 3).flatten(3)


def _of_squares(weight: Tensor) -> Tensor:
    return weight.permute(2, 3, 1, 0).flatten(0, 2)


def _neighbours(x: Tensor) -> Tensor:
    """Return the 3x3 square around every pixel: (sample, row, column, 9 * channel)."""
    squares = F.pad(x.movedim(1, -1), (0, 0, 1, 1, 1, 1)).unfold(1, 3, 1).unfold(2, 3, 1)
    return squares.permute(0, 1, 2, 4, 5, 3).flatten(3)


def _of_neighbours(weight: Tensor) -> Tensor:
    """Return what each of 3x3 pixels gives to each of the 2x2 pixels in the place of the middle one.

    Pixel 2i + a of the result has row k of the kernel from pixel i + d, where 2d + k = a + 1. There is none for the
    others, whose weights are 0.
    """
    rows = F.pad(weight, (0, 1, 0, 1))  # the fifth row and column are 0
    rows = torch.cat([rows.narrow(2, k, 1) for k in _KERNEL_ROWS], 2)
    both = torch.cat([rows.narrow(3, k, 1) for k in _KERNEL_ROWS], 3)
    before, after = weight.shape[:2]
    return both.view(before, after, 3, 2, 3, 2).permute(2, 4, 0, 3, 5, 1).reshape(9 * before, 4 * after)


_KERNEL_ROWS = (3, 4, 1, 2, 4, 0)  # for d = -1, 0, 1 and, within each, a = 0, 1; 4 is the row of zeros
