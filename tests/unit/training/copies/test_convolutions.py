"""Stacked convolutions as matrix products, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

from sitar.models.halving import Doubling, Halving
from sitar.training.copies.convolutions import _Double, _Halve, computed

REFEREES = {
    "halve": (_Halve, lambda x, w: F.conv2d(x, w, None, 2, 1), (3, 2, 4, 4)),
    "double": (_Double, lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), (2, 3, 4, 4)),
}


def values(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize("name", REFEREES)
def test_they_are_torchs_convolutions(name: str) -> None:
    ours, referee, kernel = REFEREES[name]
    x, weight = values(5, 2, 6, 8), values(*kernel)
    torch.testing.assert_close(ours.apply(x, weight), referee(x, weight))
    grad = torch.randn_like(referee(x, weight))
    found = torch.autograd.grad(ours.apply(x, weight), (x, weight), grad)
    torch.testing.assert_close(found, torch.autograd.grad(referee(x, weight), (x, weight), grad))


@pytest.mark.parametrize("name", REFEREES)
def test_gradients_have_gradients(name: str) -> None:
    """A penalty on slopes differentiates twice."""
    ours, _, kernel = REFEREES[name]
    inputs = values(1, 2, 2, 4), values(*kernel)
    assert torch.autograd.gradcheck(ours.apply, inputs)
    assert torch.autograd.gradgradcheck(ours.apply, inputs)


@pytest.mark.parametrize("name", REFEREES)
def test_copies_are_computed_apart(name: str) -> None:
    ours, referee, kernel = REFEREES[name]
    x, weight = values(3, 5, 2, 4, 4), values(3, *kernel)
    expected = torch.stack([referee(a, b) for a, b in zip(x, weight, strict=True)])
    torch.testing.assert_close(vmap(ours.apply)(x, weight), expected)


@pytest.mark.parametrize("layer", [Halving(2, 3), Doubling(2, 3), Doubling(2, 3, (1, 0))], ids=["half", "twice", "odd"])
@pytest.mark.parametrize("size", [(6, 8), (5, 7)])
def test_layers_are_as_they_were_afterwards(layer: nn.Module, size: tuple[int, int]) -> None:
    """With biases, and with images that are not halved evenly."""
    x = torch.randn(4, 2, *size)
    before = layer(x)
    with computed("patches", layer):
        torch.testing.assert_close(layer(x), before)
        assert ("forward" in vars(layer)) == (not any(getattr(layer, "output_padding", ())))
    assert "forward" not in vars(layer)


def test_mixed_precision_is_that_of_autocast() -> None:
    x, weight = torch.randn(4, 2, 6, 6), torch.randn(3, 2, 4, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = _Halve.apply(x, weight)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, F.conv2d(x, weight, None, 2, 1), rtol=0.05, atol=0.1)
    (gradient,) = torch.autograd.grad(found.float().sum(), weight)
    assert gradient.dtype == torch.float32
