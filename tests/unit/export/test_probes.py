"""Probes are like the data that a model was trained on, as far as the model knows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from sitar.export.probes import LEAST, MOST, probes
from sitar.models import Standardise


def model_of(shape: tuple[int, ...], *parts: nn.Module) -> Any:
    return SimpleNamespace(task=SimpleNamespace(shape=shape), method=nn.Sequential(*parts))


def test_images_are_dark_and_bright_flat_and_noisy() -> None:
    x = probes(model_of((3, 20, 20)))
    assert (x.dtype, tuple(x.shape)) == (torch.uint8, (MOST, 3, 20, 20))
    means, deviations = x.float().mean((2, 3)), x.float().std((2, 3))
    assert means.min() < 60
    assert means.max() > 190
    assert deviations.min() < 20
    assert deviations.max() > 60
    floats = probes(model_of((3, 20, 20)), floats=True)
    np.testing.assert_allclose(floats * 255, x, atol=1e-3)


def test_large_images_are_fewer() -> None:
    assert len(probes(model_of((3, 224, 224)))) == 27
    assert len(probes(model_of((3, 1024, 1024)))) == LEAST


def test_features_have_the_moments_of_the_training_data() -> None:
    mean, deviation = torch.tensor([1000.0, -3.0, 5.0]), torch.tensor([100.0, 0.01, 0.0])
    x = probes(model_of((3,), Standardise(mean, deviation))).double()
    assert x.dtype == torch.float64
    torch.testing.assert_close(x.mean(0).float(), mean, rtol=0.05, atol=0.01)
    torch.testing.assert_close(x.std(0).float(), deviation, rtol=0.15, atol=1e-6)
    assert (x[:, 2] == 5).all(), "what never changed in training does not change here"


def test_features_of_an_unknown_scale_are_standard() -> None:
    x = probes(model_of((4,)))
    assert x.dtype == torch.float32
    assert abs(float(x.mean())) < 0.1
    assert abs(float(x.std()) - 1) < 0.1
