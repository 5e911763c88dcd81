"""The quick convolutions compute what torch's own compute: values, gradients, and gradients of gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from sitar.data import load_data
from sitar.methods import build_method
from sitar.models import halving
from sitar.models.halving import Doubling, Halving, double
from sitar.presets import load_config

SIZES = [(7, 7), (2, 5), (1, 1), (6, 3)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often an image is doubled in our way."""
    made: list[int] = []

    def counted(*arguments):
        made.append(1)
        return double(*arguments)

    monkeypatch.setattr(halving, "double", counted)
    return made


def torchs(layer: nn.Conv2d | nn.ConvTranspose2d, x: torch.Tensor) -> torch.Tensor:
    if isinstance(layer, nn.ConvTranspose2d):
        return F.conv_transpose2d(x, layer.weight, layer.bias, 2, 1, layer.output_padding)  # type: ignore[arg-type]
    return F.conv2d(x, layer.weight, layer.bias, 2, 1)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 20), st.integers(1, 20), st.integers(1, 9), st.integers(1, 9),
    st.tuples(st.integers(0, 1), st.integers(0, 1)),
)  # fmt: skip
def test_an_image_of_any_size_is_doubled_as_by_torch(batch, inputs, outputs, height, width, extra):
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(batch, inputs, height, width),
        torch.randn(inputs, outputs, 4, 4),
        torch.randn(outputs),
    )
    expected = F.conv_transpose2d(x, weight, bias, 2, 1, extra)
    torch.testing.assert_close(double(x, weight, bias, extra), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layer", [Doubling(5, 3), Doubling(5, 3, (1, 0)), Halving(5, 7)])
def test_a_layer_has_the_gradients_of_torch(layer, size, calls):
    if isinstance(layer, Halving):
        size = (2 * size[0] + 1, 2 * size[1])
    x = torch.randn(2, 5, *size, requires_grad=True)
    inputs = [x, *layer.parameters()]
    ours, theirs = layer(x), torchs(layer, x)
    direction = torch.randn_like(theirs)
    ours_grad = torch.autograd.grad(ours, inputs, direction)
    assert calls == [1]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours_grad, torch.autograd.grad(theirs, inputs, direction), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")  # torch's own, of dual numbers
@pytest.mark.parametrize("apply", [halving._Double.apply, halving._Halve.apply])
def test_all_derivatives_are_those_of_finite_differences(apply):
    torch.manual_seed(0)
    transposed = apply == halving._Double.apply
    x = torch.randn(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    inputs = (x, weight, bias, (0, 1)) if transposed else (x, weight.transpose(0, 1).detach().requires_grad_(), bias)
    assert torch.autograd.gradcheck(apply, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(apply, inputs)


def test_copies_of_a_layer_run_under_vmap(calls):
    for layers, x in (([Doubling(4, 3) for _ in range(3)], torch.randn(2, 4, 5, 5)),
                      ([Halving(4, 3) for _ in range(3)], torch.randn(2, 4, 6, 6))):  # fmt: skip
        state, _ = torch.func.stack_module_state(layers)

        def total(parameters, x, template=layers[0]):
            return torch.func.functional_call(template, parameters, (x,)).square().sum()

        slopes = torch.func.vmap(torch.func.grad(total, argnums=1), (0, None))(state, x)
        for layer, slope in zip(layers, slopes, strict=True):
            own = x.clone().requires_grad_()
            torchs(layer, own).square().sum().backward()
            torch.testing.assert_close(slope, own.grad, rtol=1e-4, atol=1e-4)
    assert calls


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (Doubling(4, 16), torch.randn(2, 4, 5, 5)),
        (Doubling(4, 3).double(), torch.randn(2, 4, 5, 5, dtype=torch.float64)),
        (Halving(4, 3), torch.randn(2, 4, 6, 6)),
    ],
    ids=["many channels", "float64", "no gradient of the input"],
)
def test_what_is_quick_in_torch_is_left_to_torch(layer, x, calls):
    assert torch.equal(layer(x), torchs(layer, x))
    layer(x).sum().backward()
    assert not calls


def test_mixed_precision_and_compilation_are_left_to_torch(calls):
    layer, x = Doubling(4, 3), torch.randn(2, 4, 5, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    assert calls == [1], "only the plain call takes our way"


@pytest.mark.parametrize("preset", ["demo/sitar", "demo/erm"])
def test_twenty_steps_of_training_agree_with_torchs_layers(preset, monkeypatch):
    config = load_config(preset, ["data.train_size=1280", "data.eval_size=100"], 0)
    data = load_data(config.data)
    losses = {}
    for few in (0, halving.FEW_CHANNELS):
        monkeypatch.setattr(halving, "FEW_CHANNELS", few)
        torch.manual_seed(0)
        method = build_method(config, data.task)
        optimiser = torch.optim.Adam(method.parameters(), lr=config.train.learning_rate)
        losses[few] = []
        for index in torch.randperm(len(data.train)).split(64):
            optimiser.zero_grad()
            loss = method.loss(data.train.batch(index))["loss"]  # type: ignore[operator]
            loss.backward()
            optimiser.step()
            losses[few].append(loss.item())
    plain, ours = losses.values()
    assert len(plain) == 20
    assert plain != ours, "both were computed in the same way"
    assert ours == pytest.approx(plain, rel=1e-5)
