"""Eq. 3: perturbations along what tracks the label, and what every kind of noise promises."""

from __future__ import annotations

import pytest
import torch

from helpers import referees
from helpers.referees import DISTRIBUTIONS, close, moments_of
from sitar.functional.correlation import LabelMoments, label_moments
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


def labelled(classes: int, samples: int = 3000) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a latent of correlated axes of other spreads, and labels that it tells in part."""
    torch.manual_seed(0)
    y = torch.randint(classes, (samples,))
    z = torch.randn(samples, 3) @ torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.2, 0.1], [0.3, 0.0, 0.7]])
    z[:, 0] += 1.5 * (y == 1)
    z[:, 2] -= 0.4 * (y == 0)
    return z, y


ROTATION = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))[0]
STRETCH = torch.diag(torch.tensor([0.05, 1.0, 7.0]))
MAPS = {"rotated": ROTATION, "stretched": STRETCH, "both": ROTATION @ torch.diag(torch.tensor([0.4, 1.0, 2.0]))}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("map", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("kind", [NOISES["direction"], NOISES["swap"]], ids=["direction", "swap"])
def test_noise_of_a_mapped_latent_is_the_mapped_noise(kind, map, classes):
    """The moments are those of the mapped data, computed anew: the noise then moves the same samples by the same."""
    z, y = labelled(classes)
    noise = drawn_from(kind, z, label_moments(z, y, classes)) @ map
    close(drawn_from(kind, z @ map, label_moments(z @ map, y, classes)) / noise.std(), noise / noise.std(), atol=0.02)


@pytest.mark.parametrize("map", MAPS.values(), ids=MAPS)
def test_noise_on_axes_depends_on_what_the_axes_are(map):
    """The test above can fail."""
    z, y = labelled(2)
    noise = drawn_from(NOISES["axis"], z, label_moments(z, y, 2)) @ map
    mapped = drawn_from(NOISES["axis"], z @ map, label_moments(z @ map, y, 2))
    assert ((mapped - noise) / noise.std()).abs().max() > 0.3


def test_redundant_axes_are_exchanged_once():
    """Copies of one axis that tells the label: the component is exchanged, not overshot."""
    torch.manual_seed(0)
    y = torch.arange(2000) % 2
    z = (2.0 * y - 1 + 0.01 * torch.randn(2000)).unsqueeze(1).expand(-1, 8)
    close(z + swap_noise(z, label_moments(z, y, 2).shared), z.roll(1, 0).numpy(), atol=0.05)


def test_more_axes_than_samples_and_a_constant_axis_are_no_trouble():
    torch.manual_seed(0)
    z, y = torch.randn(20, 50), torch.arange(20) % 2
    z[:, 3] = 0.7
    noise = swap_noise(z, label_moments(z, y, 2).shared)
    assert torch.isfinite(noise).all()
    assert noise.abs().max() < 10
    assert not noise[:, 3].any()


KINDS = pytest.mark.parametrize("kind", NOISES.values(), ids=NOISES)
CLASSES = pytest.mark.parametrize("correlation", [TWO, THREE], ids=["two classes", "three classes"])


def drawn_from(kind: Noise, z: torch.Tensor, moments: LabelMoments, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return kind.draw(z, moments)


def drawn(kind: Noise, z: torch.Tensor, correlation: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return drawn_from(kind, z, moments_of(correlation), seed)


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
    noise = kind.draw(z, moments_of(correlation), distribution)
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
            kind.rows(moments_of(correlation))
        return
    for distribution in DISTRIBUTIONS:
        torch.manual_seed(0)
        noise = kind.draw(torch.full((referees.MANY, 3), 5.0), moments_of(correlation), distribution).double()
        rows = kind.rows(moments_of(correlation.double()))
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

    def draw(z: torch.Tensor, correlation: torch.Tensor) -> torch.Tensor:
        return kind.draw(z, moments_of(correlation))

    noise = torch.vmap(draw, randomness="different")(z, correlations)
    assert noise.shape == z.shape
    if not kind.has_distribution:
        close(noise, torch.stack([draw(*pair) for pair in zip(z, correlations, strict=True)]).numpy(), atol=1e-5)
    if kind.no_rows is None:
        rows = torch.vmap(lambda one: kind.rows(moments_of(one)))(correlations)
        close(rows, torch.stack([kind.rows(moments_of(one)) for one in correlations]).numpy())
