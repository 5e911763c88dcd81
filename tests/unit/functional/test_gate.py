"""The gate: a closed-form probe against scikit-learn, and what it says of latents that tell the label once or twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from torch import Tensor

from sitar.functional import gate
from sitar.functional.correlation import label_moments
from sitar.functional.gate import TAU, along, read_gate, usable_information
from sitar.functional.noise import NOISES

pytestmark = pytest.mark.shapes


def latent(cue: bool, core: bool, n: int = 600, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Axis 0 is a cue. Axes 1 and 2 hold the core, which is not linear in them, as shapes are not."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=random)
    mu = torch.randn(n, 5, generator=random, dtype=torch.float64)
    if cue:
        mu[:, 0] += 5 * torch.where(torch.rand(n, generator=random) < 0.95, y, 1 - y)
    if core:
        mu[:, 1:3] *= torch.where(y == 1, 3.0, 0.3).unsqueeze(1)
    return mu, y


def share(mu: Tensor, y: Tensor, noise: str = "swap") -> float:
    covariance = torch.cov(mu.T, correction=0)
    suspects = NOISES[noise].suspects(label_moments(mu, y, 2), covariance.float()).double()
    return float(read_gate(mu, y, 2, suspects, covariance).share)


def test_usable_information_is_that_of_leaving_each_sample_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mu, y = latent(cue=True, core=True, n=60)
    monkeypatch.setattr(gate, "RIDGES", (1.0,))
    x, labels = mu.numpy(), np.eye(2)[y.numpy()]
    labels = labels - labels.mean(0)
    width = torch.cdist(mu, mu).square().median().item()
    predicted = np.zeros_like(labels)
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        predicted[i] = (
            KernelRidge(alpha=1, kernel="rbf", gamma=1 / width).fit(x[others], labels[others]).predict(x[[i]])
        )
    expected = 1 - ((labels - predicted) ** 2).sum() / (labels**2).sum()
    assert float(usable_information(mu, y, 2)) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("noise", ["axis", "direction", "swap"])
def test_the_gate_is_open_only_where_the_label_is_told_twice(noise: str) -> None:
    assert share(*latent(cue=True, core=True), noise) >= TAU
    assert share(*latent(cue=True, core=False), noise) < TAU
    assert share(*latent(cue=False, core=False), noise) < TAU


def test_it_is_closed_where_nothing_is_linear() -> None:
    """Without a cue no direction tells the label, so there is nothing to perturb."""
    assert share(*latent(cue=False, core=True)) < TAU


def test_it_does_not_depend_on_the_axes() -> None:
    mu, y = latent(cue=True, core=True)
    matrix = torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert share(mu @ matrix, y) == pytest.approx(share(mu, y), abs=1e-3)


def test_a_projection_leaves_its_own_span() -> None:
    axes = 5
    random = torch.Generator().manual_seed(0)
    rows, factor = torch.randn(3, axes, generator=random), torch.randn(axes, axes, generator=random)
    rows[2] = -rows[0] - rows[1]  # as one class against the rest: they add up to nothing
    onto = along(rows, factor @ factor.T + torch.eye(axes))
    torch.testing.assert_close(rows @ onto, rows, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(onto @ onto, onto, rtol=1e-3, atol=1e-3)


def test_the_threshold_is_that_of_the_record() -> None:
    record = Path(__file__).parents[3] / "reproduce" / "records" / "gate_rule.json"
    assert json.loads(record.read_text())["tau"] == TAU


def test_a_latent_that_tells_nothing_has_a_share_of_nothing() -> None:
    zero = torch.zeros(())
    assert float(gate.Reading(zero, zero, zero).share) == 0
