"""Eq. 1 and 4, and the loss that puts them together."""

from __future__ import annotations

import pytest
import torch

from helpers import referees
from helpers.referees import close, sitar_method
from sitar.data import TrainBatch
from sitar.functional import losses
from sitar.methods.sitar import SITAR

pytestmark = pytest.mark.shapes


@pytest.mark.parametrize("name", ["reparameterise", "reconstruction", "gaussian_kl", "cross_entropy", "consistency"])
def test_term(name):
    getattr(referees, f"check_{name}")(getattr(losses, name))


def test_reconstruction_grows_with_the_image():
    """A sum over pixels: four times the pixels, four times the loss."""
    small = losses.reconstruction(torch.zeros(2, 3, 4, 4), torch.ones(2, 3, 4, 4))
    large = losses.reconstruction(torch.zeros(2, 3, 8, 8), torch.ones(2, 3, 8, 8))
    assert (small, large) == (48, 192)


def test_reconstruction_does_not_grow_with_the_batch():
    assert losses.reconstruction(torch.zeros(9, 5), torch.ones(9, 5)) == 5


def test_kl_grows_with_the_axes_not_with_the_batch():
    one = losses.gaussian_kl(torch.ones(1, 1), torch.zeros(1, 1))
    close(losses.gaussian_kl(torch.ones(7, 4), torch.zeros(7, 4)), 4 * one.item())


def test_scale_of_class_weights_does_not_matter():
    logits, y = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
    weight = torch.tensor([0.2, 1.0, 3.0])
    close(losses.cross_entropy(logits, y, 5 * weight), losses.cross_entropy(logits, y, weight).item())


def test_reparameterise_follows_the_seed():
    mu = torch.zeros(5, 2)
    torch.manual_seed(1)
    first = losses.reparameterise(mu, mu)
    torch.manual_seed(1)
    assert torch.equal(first, losses.reparameterise(mu, mu))
    assert not torch.equal(first, losses.reparameterise(mu, mu))


def test_sitar_loss_is_algorithm_1():
    referees.check_sitar_loss(SITAR.loss)


def test_without_alpha_nothing_is_perturbed():
    method = sitar_method(alpha=0)
    terms = method.loss(TrainBatch(torch.rand(16, 3, 8, 8), torch.arange(16) % 2, torch.arange(16)))
    assert terms["consistency"] == 0
