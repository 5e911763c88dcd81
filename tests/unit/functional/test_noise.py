"""Eq. 3: perturbations along what tracks the label, and what every kind of noise promises."""

from __future__ import annotations

import pytest
import torch

from helpers import referees
from helpers.referees import DISTRIBUTIONS, close
from sitar.functional.noise import NOISES, Noise, axis_noise, direction_noise, swap_noise, unit_noise
from sitar.methods.sitar import SITARConfig

pytestmark = pytest.mark.shapes

TWO = torch.tensor([[0.8, -0.5, 0.1]])
THREE = torch.tensor([[0.8, -0.5, 0.1], [-0.2, 0.6, 0.0], [-0.6, -0.1, -0.1]])
FUNCTIONS = {
    "unit": unit_noise,
    "axis": lambda z, **kw: axis_noise(z, TWO[0].abs(), **kw),
    "direction": lambda z, **kw: direction_noise(z, TWO, **kw),
}


def test_unit_noise():
    referees.check_unit_noise(unit_noise)


def test_axis_noise():
    referees.check_axis_noise(axis_noise)


def test_direction_noise():
    referees.check_direction_noise(direction_noise)


def test_swap_noise():
    referees.check_swap_noise(swap_noise)


@pytest.mark.parametrize(
    "noise",
    [
        lambda z: axis_noise(z, TWO[0].abs()),
        lambda z: direction_noise(z, TWO),
        lambda z: swap_noise(z, TWO),
    ],
    ids=["axis", "direction", "swap"],
)
def test_no_gradient_flows(noise):
    referees.check_noise_has_no_gradient(noise)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_global_seed_decides(name, distribution):
    z = torch.zeros(50, 3)

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return FUNCTIONS[name](z, distribution=distribution)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_swap_draws_nothing():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    swap_noise(torch.ones(4, 3), TWO)
    assert torch.equal(torch.get_rng_state(), before)


def test_default_is_gaussian():
    torch.manual_seed(0)
    noise = unit_noise(torch.zeros(100))
    torch.manual_seed(0)
    assert torch.equal(noise, torch.randn(100))


def test_score_of_ones_is_isotropic():
    torch.manual_seed(0)
    noise = axis_noise(torch.zeros(referees.MANY, 3), torch.ones(3))
    close(torch.cov(noise.T), torch.eye(3).numpy(), atol=0.015)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_dtype_of_the_latent_is_kept(dtype, distribution):
    z = torch.zeros(5, 3, dtype=dtype)
    assert axis_noise(z, TWO[0].abs(), distribution).dtype == dtype
    assert direction_noise(z, TWO, distribution).dtype == dtype
    assert swap_noise(z, TWO).dtype == dtype


def test_swap_of_a_rotated_latent_is_the_rotated_swap():
    torch.manual_seed(0)
    z, (rotation, _) = torch.randn(9, 3), torch.linalg.qr(torch.randn(3, 3))
    close(swap_noise(z @ rotation, TWO @ rotation), (swap_noise(z, TWO) @ rotation).numpy())


def test_redundant_axes_are_exchanged_once():
    """Two copies of one axis, both correlated: the component is exchanged, not overshot."""
    torch.manual_seed(0)
    z = torch.randn(9, 1).expand(-1, 8)
    r = torch.full((1, 8), 0.9)
    close(z + swap_noise(z, r), z.roll(1, 0).numpy(), atol=1e-5)
    close(swap_noise(z, 10 * r), swap_noise(z, r).numpy(), atol=1e-5)


KINDS = pytest.mark.parametrize("kind", NOISES.values(), ids=NOISES)
CLASSES = pytest.mark.parametrize("correlation", [TWO, THREE], ids=["two classes", "three classes"])


def drawn(kind: Noise, z: torch.Tensor, correlation: torch.Tensor, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return kind.draw(z, correlation)


@KINDS
def test_a_kind_says_what_it_is(kind):
    assert NOISES[kind.name] is kind
    assert kind.about
    assert kind.about in (SITARConfig.model_fields["noise"].description or "")
    assert SITARConfig(noise=kind.name).noise == kind.name


@KINDS
@CLASSES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_noise_is_like_the_latent_and_without_gradient(kind, correlation, dtype, distribution):
    z = torch.randn(8, 3).to(dtype).requires_grad_()
    noise = kind.draw(z, correlation, distribution)
    assert (noise.shape, noise.dtype, noise.device) == (z.shape, z.dtype, z.device)
    assert not noise.requires_grad
    assert torch.isfinite(noise).all()


@KINDS
@CLASSES
def test_the_seed_decides_every_kind(kind, correlation):
    z = torch.randn(50, 3, generator=torch.Generator().manual_seed(7))
    assert torch.equal(drawn(kind, z, correlation), drawn(kind, z, correlation))
    same = torch.equal(drawn(kind, z, correlation), drawn(kind, z, correlation, seed=1))
    assert same == (not kind.has_distribution)


@KINDS
@CLASSES
def test_noise_has_the_moments_of_its_rows(kind, correlation):
    if kind.no_rows is not None:
        with pytest.raises(ValueError, match=kind.name):
            kind.rows(correlation)
        return
    for distribution in DISTRIBUTIONS:
        torch.manual_seed(0)
        noise = kind.draw(torch.full((referees.MANY, 3), 5.0), correlation, distribution).double()
        rows = kind.rows(correlation.double())
        close(noise.mean(0), torch.zeros(3).numpy(), atol=0.01)
        close(torch.cov(noise.T), (rows.T @ rows).numpy(), atol=0.015)


@KINDS
@CLASSES
def test_only_isotropic_noise_moves_a_latent_that_does_not_track_the_label(kind, correlation):
    noise = drawn(kind, torch.randn(50, 3), torch.zeros_like(correlation))
    assert bool(noise.any()) == (kind.name == "isotropic")


@KINDS
@CLASSES
def test_an_axis_without_correlation_stays_where_it_is(kind, correlation):
    blind = correlation.clone()
    blind[:, 1] = 0
    noise = drawn(kind, torch.randn(50, 3), blind)
    assert bool(noise[:, 1].any()) == (kind.name == "isotropic")
    assert noise[:, 0].any()


@KINDS
@CLASSES
def test_noise_runs_for_copies_under_vmap(kind, correlation):
    z = torch.randn(4, 6, 3)
    correlations = torch.stack([correlation, 0.5 * correlation, -correlation, 0.1 * correlation])
    noise = torch.vmap(kind.draw, randomness="different")(z, correlations)
    assert noise.shape == z.shape
    if not kind.has_distribution:
        close(noise, torch.stack([kind.draw(*pair) for pair in zip(z, correlations, strict=True)]).numpy())
    if kind.no_rows is None:
        rows = torch.vmap(kind.rows)(correlations)
        close(rows, torch.stack([kind.rows(one) for one in correlations]).numpy())
