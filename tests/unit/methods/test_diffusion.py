"""The diffusion classifier on features: what it learns of Gaussian classes, and what every loss promises."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from helpers.referees import close
from sitar.config import ModelConfig
from sitar.data.types import Task, TrainBatch
from sitar.methods import Objective, diffusion
from sitar.methods.diffusion import Diffusion, DiffusionConfig
from sitar.testing.methods import LossModule, assert_compiled_equals_eager, fake_terms

N = 400


def gaussians(features: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two classes, four deviations apart along the diagonal, in features of very different scale and mean."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(N) % 2
    x = torch.randn(N, features, generator=random) + (4 * y.unsqueeze(1) - 2) / math.sqrt(features)
    return x * torch.logspace(-3, 3, features) + 50, y


def method(x: Tensor, y: Tensor, **options: object) -> Diffusion:
    torch.manual_seed(0)
    counts = tuple(torch.bincount(y, minlength=2).tolist())
    task = Task(tuple(x.shape[1:]), 2, len(x), counts, (x.mean(0), x.std(0)))
    return Diffusion(DiffusionConfig(**{"mlp_width": 32, "scoring_pairs": 8, **options}), ModelConfig(), task)  # type: ignore[arg-type]


def batch(x: Tensor, y: Tensor) -> TrainBatch:
    return TrainBatch(x, y, torch.arange(len(x)))


def test_gaussian_classes_are_learned() -> None:
    """The best classifier, the nearest mean, has 97.7 %."""
    x, y = gaussians()
    model = method(x, y, mlp_width=64, scoring_pairs=32)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(300):
        optimiser.zero_grad()
        model.loss(batch(x, y))["loss"].backward()
        optimiser.step()
    unseen, label = gaussians(seed=1)
    with torch.no_grad():
        assert (model.logits(unseen).argmax(1) == label).float().mean() > 0.9


@torch.no_grad()
def test_logits_agree_with_a_plain_loop() -> None:
    x, y = gaussians()
    model, x = method(x, y), x[:3]
    standard = (x - model.backbone.mean) * model.backbone.scale  # type: ignore[operator]
    expected = torch.zeros(3, 2)
    for i in range(3):
        for c in range(2):
            for t, noise in zip(model.scoring_t, model.scoring_noise, strict=True):
                a = model.alphas_cumprod[t]
                x_t = a.sqrt() * standard[i] + (1 - a).sqrt() * noise
                out = model.denoiser(x_t.unsqueeze(0), t.view(1), torch.tensor([c]))[0]
                expected[i, c] -= (out - noise).square().sum() / 8
    close(model.logits(x), (expected - math.log(2)).numpy(), rtol=1e-4)
    assert (expected.std(1) > 1e-3).all()  # classes do differ


@torch.no_grad()
@pytest.mark.parametrize("features", [1, 2 * 12 * 3])
def test_logits_in_chunks_are_the_same(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = gaussians()
    model, largest = method(x, y), []
    together = model.logits(x[:5])
    monkeypatch.setattr(diffusion, "SCORING_PIXELS", features)
    model.denoiser.register_forward_pre_hook(lambda _, inputs: largest.append(len(inputs[0])))
    close(model.logits(x[:5]), together.numpy(), rtol=1e-4)
    assert max(largest) == max(2, features // 12)


def test_units_of_the_features_do_not_matter() -> None:
    x, y = gaussians()
    ours, theirs = method(x, y), method(1000 * x, y)
    losses = []
    for model, inputs in ((ours, x), (theirs, 1000 * x)):
        torch.manual_seed(1)
        losses.append(float(model.loss(batch(inputs, y))["loss"].detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("kept", ["compiled", "never waits", "vmap"])
def test_the_loss_keeps_the_promises_of_a_loss(kept: str) -> None:
    x, y = (part[:32] for part in gaussians())
    modules = [LossModule(m, Objective(m.loss, list(m.parameters()))) for m in (method(x, y), method(x, y))]
    if kept == "compiled":
        assert_compiled_equals_eager(modules[0], batch(x, y), backend="aot_eager", rtol=1e-5)
    elif kept == "never waits":
        assert fake_terms(modules[0], batch(x, y))["loss"].shape == ()
    else:
        parameters, buffers = stack_module_state(modules)  # type: ignore[arg-type]

        def loss(p: dict, b: dict) -> Tensor:
            return functional_call(modules[0], (p, b), (x, y, torch.arange(32)))["loss"]

        together = vmap(loss, randomness="different")(parameters, buffers)
        assert together.shape == (2,)
        assert together[0] != together[1]  # the draws of noise are their own
