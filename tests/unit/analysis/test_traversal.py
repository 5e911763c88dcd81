"""Traversals of an axis, and the real images at its ends."""

from __future__ import annotations

import pytest
import torch

from sitar.analysis.traversal import ENDS, STARTS, STEPS, extremes, traversal
from sitar.models import VAE, ConvDecoder, ConvEncoder


def test_only_the_axis_moves_along_a_traversal() -> None:
    torch.manual_seed(0)
    encoder = ConvEncoder((3, 8, 8), (4,))
    vae = VAE(encoder, ConvDecoder(3, encoder), 3)
    mu, y = torch.randn(50, 3) * torch.tensor([1.0, 4.0, 1.0]), torch.arange(50) % 2
    images, values = traversal(vae, mu, y, axis=1)
    assert images.shape == (1 + STARTS, STEPS, 3, 8, 8)
    assert images.dtype == torch.uint8
    assert values[0] == pytest.approx(float(mu[:, 1].mean() - 2.5 * mu[:, 1].std()), abs=1e-5)
    assert values[-1] == pytest.approx(float(mu[:, 1].mean() + 2.5 * mu[:, 1].std()), abs=1e-5)
    starts = [mu.mean(0), *mu[:STARTS]]  # the classes alternate here already
    for row, start in zip(images, starts, strict=True):
        z = start.repeat(STEPS, 1)
        z[:, 1] = values
        with torch.no_grad():
            assert torch.equal(row, (255 * vae.decode(z)).round().to(torch.uint8))
    assert not torch.equal(images[:, 0], images[:, -1])


def test_a_traversal_starts_from_each_class_in_turn() -> None:
    torch.manual_seed(0)
    encoder = ConvEncoder((1, 8, 8), (4,))
    vae = VAE(encoder, ConvDecoder(2, encoder), 2)
    y = torch.tensor([0] * 30 + [1] * 30 + [2] * 30)
    mu = torch.randn(90, 2)
    sorted_last = traversal(vae, mu, y, 0)[0][1:]
    alternating = torch.stack([torch.arange(30), torch.arange(30, 60), torch.arange(60, 90)], 1).flatten()
    assert torch.equal(sorted_last, traversal(vae, mu[alternating], y[alternating], 0)[0][1:])


def test_extremes_are_the_ends_of_every_class() -> None:
    value = torch.randperm(60, generator=torch.Generator().manual_seed(0)).float()
    y = torch.arange(60) % 2
    x = value.to(torch.uint8)[:, None, None, None].expand(60, 1, 2, 2)
    ends = extremes(x, value, y, [0, 1])
    assert ends.shape == (2, 2, ENDS, 1, 2, 2)
    for c in (0, 1):
        mine = value[y == c].sort().values.tolist()
        assert ends[c, 0, :, 0, 0, 0].tolist() == mine[:ENDS]
        assert ends[c, 1, :, 0, 0, 0].tolist() == mine[-ENDS:]


def test_extremes_of_few_samples_do_not_overlap() -> None:
    x = torch.arange(25, dtype=torch.uint8)[:, None, None, None].expand(25, 1, 2, 2)
    y = (torch.arange(25) >= 20).long()
    ends = extremes(x, torch.arange(25.0), y, [0, 1])
    assert ends[1, :, :, 0, 0, 0].tolist() == [[20, 21], [23, 24]]
