"""Convolutions that halve an image, or double it. They are quick on a CPU where torch's own are slow.

On a CPU torch computes a transposed convolution for a whole vector of channels, and an image has only three. So an
image of few channels is doubled in another way here, with the same result up to rounding. Doubling puts a square of 2x2
pixels in place of each pixel, and each of the four places in the square is a plain 2x2 convolution. One convolution
computes all four, and copies put them in place. The gradient of a halving convolution is a doubling one, and takes the
same way.

Weights have the names and shapes that they have in torch's layers. docs/performance.md has the times.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

KERNEL, STRIDE, PADDING = 4, 2, 1
FEW_CHANNELS = 16  # fewer do not fill a vector of the processor
Extra = tuple[int, int]  # rows and columns, 0 or 1 of each, by which an image is more than doubled


class Halving(nn.Conv2d):
    """This 4x4 convolution has stride 2, and halves an image."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, KERNEL, STRIDE, PADDING)

    def forward(self, input: Tensor) -> Tensor:
        if input.requires_grad and _is_slow(input, self.in_channels):
            return _Halve.apply(input, self.weight, self.bias)  # type: ignore[return-value]
        return super().forward(input)


class Doubling(nn.ConvTranspose2d):
    """This 4x4 transposed convolution has stride 2, and doubles an image."""

    def __init__(self, before: int, after: int, extra: Extra = (0, 0)) -> None:
        super().__init__(before, after, KERNEL, STRIDE, PADDING, output_padding=extra)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if output_size is None and _is_slow(input, self.out_channels):
            return _Double.apply(input, self.weight, self.bias, self.output_padding)  # type: ignore[return-value]
        return super().forward(input, output_size)


def _is_slow(x: Tensor, channels: int) -> bool:
    """Say whether torch is slow at doubling to so few channels. A compiled or exported model keeps torch's way."""
    on_cpu = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return on_cpu and channels < FEW_CHANNELS and not torch.compiler.is_compiling()


def double(x: Tensor, weight: Tensor, bias: Tensor | None, extra: Extra = (0, 0)) -> Tensor:
    """Return `conv_transpose2d` of kernel 4, stride 2 and padding 1, by a 2x2 convolution for each place in a square.

    Row i of place a is row 2i - 1 + a of the result. Its kernel has every second row of the whole one, backwards.
    """
    inputs, outputs = weight.shape[:2]
    kernels = weight.view(inputs, outputs, 2, 2, 2, 2).flip(2, 4).permute(1, 3, 5, 0, 2, 4)
    bias = None if bias is None else bias.repeat_interleave(4)
    places = F.conv2d(x, kernels.reshape(4 * outputs, inputs, 2, 2), bias, padding=1)
    places = places.reshape(len(x), outputs, 2, 2, *places.shape[-2:])
    doubled = places.new_empty(len(x), outputs, 2 * x.shape[-2] + extra[0], 2 * x.shape[-1] + extra[1])
    for a in (0, 1):
        for b in (0, 1):
            place = doubled[:, :, 1 - a :: 2, 1 - b :: 2]
            rows, columns = place.shape[-2:]
            place.copy_(places[:, :, a, b, 1 - a : 1 - a + rows, 1 - b : 1 - b + columns])
    return doubled


class _Double(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, extra: Extra) -> Tensor:
        return double(x, weight, bias, extra)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, ctx.extra = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return (*_gradients(grad, x, weight, ctx.needs_input_grad, transposed=True, extra=ctx.extra), None)

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, _: None) -> Tensor:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        along_x = 0 if dx is None else _Double.apply(dx, weight, None, ctx.extra)
        along_weight = 0 if dweight is None else _Double.apply(x, dweight, None, ctx.extra)
        return along_x + along_weight + (0 if dbias is None else dbias[:, None, None])  # type: ignore[operator]


class _Halve(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.conv2d(x, weight, bias, STRIDE, PADDING)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        of_x, needs_weight, needs_bias = None, *ctx.needs_input_grad[1:]
        if ctx.needs_input_grad[0]:
            extra = (x.shape[-2] - 2 * grad.shape[-2], x.shape[-1] - 2 * grad.shape[-1])
            of_x = _Double.apply(grad, weight, None, extra)
        return of_x, *_gradients(grad, x, weight, (False, needs_weight, needs_bias), transposed=False)[1:]

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None) -> Tensor:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        along_x = 0 if dx is None else F.conv2d(dx, weight, None, STRIDE, PADDING)
        along_weight = 0 if dweight is None else F.conv2d(x, dweight, None, STRIDE, PADDING)
        return along_x + along_weight + (0 if dbias is None else dbias[:, None, None])  # type: ignore[return-value]


def _gradients(
    grad: Tensor, x: Tensor, weight: Tensor, needed: tuple[bool, ...], *, transposed: bool, extra: Extra = (0, 0)
) -> tuple[Tensor | None, ...]:
    """Return torch's own gradients with respect to input, weight and bias, where they are needed."""
    steps = [[STRIDE] * 2, [PADDING] * 2, [1] * 2]
    channels = [weight.shape[1 if transposed else 0]]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, channels, *steps, transposed, list(extra), 1, list(needed[:3])
    )


for function in (_Double, _Halve):  # torch asks for the signature in every call, and finding it out takes time
    function.forward.__signature__ = signature(function.forward)  # type: ignore[attr-defined]
