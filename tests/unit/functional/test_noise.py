"""Eq. 3: perturbations along what tracks the label."""

from __future__ import annotations

import pytest
import torch

from helpers import referees
from helpers.referees import DISTRIBUTIONS, close
from sitar.functional.noise import axis_noise, direction_noise, swap_noise, unit_noise

TWO = torch.tensor([[0.8, -0.5, 0.1]])
NOISES = {
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
@pytest.mark.parametrize("name", NOISES)
def test_the_global_seed_decides(name, distribution):
    z = torch.zeros(50, 3)

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return NOISES[name](z, distribution=distribution)

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
