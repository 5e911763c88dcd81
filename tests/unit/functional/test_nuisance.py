"""Directions of what is not the label: against numpy, on planted latents, and on turned and stretched ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sitar.functional.correlation import along_nuisances, label_moments
from sitar.functional.noise import NOISES, swap_noise
from sitar.functional.nuisance import (
    column_rows,
    concept_rows,
    covariance_within,
    nuisance_projection,
    within_classes,
)

pytestmark = pytest.mark.shapes
AXES = 6
N = 4000


def planted(agrees: float = 0.9, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Axis 0 is the core, axis 1 the nuisance, which agrees with the label mostly. The rest tells nothing."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (N,), generator=random)
    nuisance = torch.where(torch.rand(N, generator=random) < agrees, y, 1 - y).double()
    mu = torch.randn(N, AXES, generator=random, dtype=torch.float64)
    mu[:, 0] += 1.5 * y
    mu[:, 1] = 0.3 * mu[:, 1] + 2 * nuisance
    return mu, y, within_classes(nuisance.unsqueeze(1), y, 2)


def projected(
    mu: Tensor, y: Tensor, nuisances: Tensor, variance: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the covariances with the label, their part along the nuisances, and the covariance within classes."""
    within = covariance_within(mu, y, 2, torch.zeros(mu.shape[1]).double() if variance is None else variance)
    projection = nuisance_projection(within, *column_rows(mu, nuisances))
    moments = label_moments(mu, y, 2)
    kept = along_nuisances(moments, projection.float(), within.float())
    return moments.with_label, kept.with_label, within


def test_within_classes_is_what_numpy_says() -> None:
    mu, y, nuisances = planted()
    x, labels = mu.numpy(), y.numpy()
    expected = x - np.stack([x[labels == c].mean(0) for c in (0, 1)])[labels]
    assert within_classes(mu, y, 2).numpy() == pytest.approx(expected)
    rows, doubt = column_rows(mu, nuisances)
    column = nuisances.numpy()
    assert rows.numpy() == pytest.approx(column.T @ expected / N)  # class means of mu have no part in it
    assert doubt.numpy() == pytest.approx((1 + AXES**0.5) ** 2 / N * (column.T @ column) / N)


def test_the_direction_is_the_nuisance_and_not_the_core() -> None:
    """The label moves axis 0 and, through the nuisance, axis 1. Noise keeps to axis 1, with its strength there."""
    whole, kept, _ = projected(*planted())
    assert whole[0, 0] > 0.3
    assert kept[0, 0].abs() < 0.03
    assert kept[0, 1] == pytest.approx(float(whole[0, 1]), rel=0.03)
    assert kept[0, 2:].abs().max() < 0.04


def test_a_nuisance_that_tells_nothing_about_the_label_is_left_in_peace() -> None:
    _, kept, _ = projected(*planted(agrees=0.5))
    assert kept.abs().max() < 0.05


def test_without_doubt_it_is_the_projection_that_numpy_computes() -> None:
    mu, y, nuisances = planted()
    within = covariance_within(mu, y, 2, torch.full((AXES,), 0.1).double())
    nuisances = torch.cat([nuisances, mu[:, [3]] + 0.5 * mu[:, [4]]], 1)  # two at once
    rows, _ = column_rows(mu, nuisances)
    found = nuisance_projection(within, rows, torch.zeros(2, 2).double()).numpy()
    half = np.linalg.cholesky(within.numpy())  # S = half half^T; in the whitened metric it is an orthogonal projection
    q, _ = np.linalg.qr(np.linalg.solve(half, rows.numpy().T))
    assert found == pytest.approx(np.linalg.inv(half).T @ q @ q.T @ half.T, abs=1e-6)
    assert found @ found == pytest.approx(found, abs=1e-6)


def test_a_nuisance_by_chance_adds_nothing() -> None:
    mu, y, nuisances = planted()
    random = torch.Generator().manual_seed(5)
    noise = torch.randn(
        N, 20, generator=random, dtype=torch.float64
    )  # more columns than axes: their span is everything
    _, alone, _ = projected(mu, y, nuisances)
    _, kept, _ = projected(mu, y, torch.cat([nuisances, noise], 1))
    _, everything, _ = projected(mu, y, noise)
    assert kept[0, 1] == pytest.approx(float(alone[0, 1]), rel=0.05)
    assert kept[0, 0].abs() < 0.7 * label_moments(mu, y, 2).with_label[0, 0]
    assert everything.norm() < 0.7 * label_moments(mu, y, 2).with_label.norm()


@pytest.mark.parametrize("kind", ["direction", "swap"])
def test_a_turned_and_stretched_latent_has_its_noise_turned_and_stretched(kind: str) -> None:
    mu, y, nuisances = planted()
    random = torch.Generator().manual_seed(1)
    matrix = (
        torch.randn(AXES, AXES, generator=random, dtype=torch.float64)
        @ torch.diag(torch.logspace(-1, 1, AXES)).double()
    )
    noises = []
    for latent in (mu, mu @ matrix):
        within = covariance_within(latent, y, 2, torch.zeros(AXES).double())
        projection = nuisance_projection(within, *column_rows(latent, nuisances))
        moments = label_moments(latent, y, 2)
        along = along_nuisances(moments, projection.float(), within.float())
        torch.manual_seed(0)
        noises.append(NOISES[kind].draw(latent[:200].float(), along).double())
    torch.testing.assert_close(noises[1], noises[0] @ matrix, rtol=0.02, atol=0.02)


def test_nuisances_in_other_units_have_the_same_noise() -> None:
    mu, y, nuisances = planted()
    both = torch.cat([nuisances, mu[:, [2]]], 1)
    _, kept, _ = projected(mu, y, both)
    _, mixed, _ = projected(mu, y, both @ torch.tensor([[3.0, 0.5], [-1.0, 2.0]]).double())
    torch.testing.assert_close(mixed, kept, rtol=1e-3, atol=1e-4)


def test_a_swap_along_a_nuisance_exchanges_it_and_leaves_the_core() -> None:
    mu, y, nuisances = planted(agrees=1.0)
    mu[:, 1] += 0.1 * torch.randn(N, generator=torch.Generator().manual_seed(2))
    nuisances = within_classes(mu[:, [1]], y, 2)  # it varies a little within classes
    _, kept, within = projected(mu, y, nuisances)
    moments = along_nuisances(label_moments(mu, y, 2), torch.eye(AXES), within.float())
    shared = kept / (moments.label_variance + 1e-8).sqrt().unsqueeze(-1)
    z = mu.float()
    moved = swap_noise(z, shared, within.float())
    towards = z.roll(1, 0) - z
    assert moved[:, 1] @ towards[:, 1] / towards[:, 1].square().sum() == pytest.approx(1, abs=0.1)  # exchanged
    assert (moved[:, 0] @ towards[:, 0] / towards[:, 0].square().sum()).abs() < 0.05


def test_a_concept_is_the_difference_of_means() -> None:
    examples = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 4.0], [9.0, 9.0]])
    contrasts = torch.tensor([[0.5, 0.5, -1.0, 0.0], [0.0, 0.0, -1.0, 1.0]])
    rows, doubt = concept_rows(examples, contrasts)
    torch.testing.assert_close(rows, torch.tensor([[1.0, -2.0], [4.5, 2.5]]))
    torch.testing.assert_close(doubt, torch.diag(2 / 4 * torch.tensor([1.5, 2.0])))  # axes / 4 * (1 / n + 1 / m)
