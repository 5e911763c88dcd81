"""The denoiser of features: what it predicts before it has learned anything, and what it is told."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from helpers.referees import MANY, close
from sitar.functional.denoising import noised
from sitar.models.feature_denoiser import WAVES, FeatureDenoiser

ALPHAS = torch.tensor([0.99, 0.7, 0.2, 0.01])


def denoiser(features: int = 6, classes: int = 3, alphas: Tensor = ALPHAS, width: int = 8) -> FeatureDenoiser:
    torch.manual_seed(0)
    return FeatureDenoiser(features, classes, alphas, width, layers=2)


@torch.no_grad()
def test_what_the_mlp_adds_to_is_the_best_linear_prediction():
    """Against least squares on features of mean 0 and variance 1; what is left has the variance alpha_bar."""
    model = denoiser(features=1)
    model.leave.weight.zero_()
    model.leave.bias.zero_()
    x, noise = torch.randn(2, MANY, 1)
    for step, alpha in enumerate(ALPHAS.tolist()):
        t, y = torch.full((MANY,), step), torch.zeros(MANY, dtype=torch.long)
        x_t = noised(x, noise, ALPHAS[t])
        slope = float((x_t * noise).mean() / x_t.square().mean())
        predicted = model(x_t, t, y)
        close(predicted, (math.sqrt(1 - alpha) * x_t).numpy())
        close(slope, math.sqrt(1 - alpha), atol=5 / math.sqrt(MANY))
        close((noise - predicted).var(), alpha, rtol=5 * math.sqrt(2 / MANY), atol=0)


@torch.no_grad()
def test_a_constant_of_the_mlp_counts_by_the_root_of_alpha_bar():
    model, x = denoiser(), torch.zeros(4, 6)
    model.leave.weight.zero_()
    model.leave.bias.fill_(2.0)
    out = model(x, torch.arange(4), torch.zeros(4, dtype=torch.long))
    close(out, (2 * ALPHAS.sqrt()).unsqueeze(1).expand(4, 6).numpy())


@torch.no_grad()
def test_step_and_class_reach_the_prediction():
    """With one alpha_bar for all steps, only the embedding can tell them apart."""
    model = denoiser(alphas=torch.full((1000,), 0.5))
    x = torch.randn(1, 6)
    t, y = torch.tensor([0, 1, 500, 999]), torch.arange(3)
    by_step = model(x.expand(4, -1), t, torch.zeros(4, dtype=torch.long))
    by_class = model(x.expand(3, -1), torch.zeros(3, dtype=torch.long), y)
    for outputs in (by_step, by_class):
        assert (torch.pdist(outputs) > 1e-4).all()


@torch.no_grad()
def test_samples_do_not_see_each_other():
    model, x = denoiser(), torch.randn(5, 6)
    t, y = torch.arange(5) % 4, torch.arange(5) % 3
    alone = torch.cat([model(x[i : i + 1], t[i : i + 1], y[i : i + 1]) for i in range(5)])
    close(model(x, t, y), alone.numpy())


def test_sizes():
    model = denoiser(features=20, classes=5, width=7)
    linear = {name: tuple(m.weight.shape) for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    assert linear["step.0"] == (7, 2 * WAVES)
    assert (linear["enter"], linear["leave"]) == ((7, 20), (20, 7))
    assert [name for name in linear if name.startswith("layers.1.")] == [
        f"layers.1.{part}" for part in ("first", "condition", "last")
    ]
    assert model.label.weight.shape == (5, 7)
    assert not [name for name in model.state_dict() if name in ("waves", "alphas_cumprod")]  # the method has the latter
