"""The latent of a trained model, and how closely its axes follow the label."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sitar.analysis.latents import bottleneck_of, ordered, posterior_means, shortcut_scores, vae_of
from sitar.errors import RunError
from sitar.methods.base import Bottleneck, Method
from sitar.models import VAE, Classifier, ConvDecoder, ConvEncoder, Network


def model_of(bottleneck: Bottleneck | None, batch: int = 16) -> Any:
    method = SimpleNamespace(bottleneck=lambda: bottleneck, why_no_vae=Method().why_no_vae, evaluation_batch=batch)
    return SimpleNamespace(method=method, encoder=None, device=torch.device("cpu"))


def test_scores_are_numpys_correlations() -> None:
    torch.manual_seed(0)
    mu, y = torch.randn(200, 3), torch.randint(0, 2, (200,))
    expected = [abs(np.corrcoef(axis, y)[0, 1]) for axis in mu.T.numpy()]
    np.testing.assert_allclose(shortcut_scores(mu, y, 2), expected, atol=1e-5)


def test_axes_are_ordered_from_the_highest() -> None:
    assert ordered(torch.tensor([0.1, 0.9, 0.5, 0.9])) == [1, 3, 2, 0]


def test_means_are_those_of_the_vae_batch_by_batch() -> None:
    torch.manual_seed(0)
    encoder = ConvEncoder((3, 8, 8), (4,))
    vae = VAE(encoder, ConvDecoder(3, encoder), 3)
    x = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8)
    model = model_of(Bottleneck(vae, vae.decode), batch=7)
    mu = posterior_means(model, x)
    with torch.no_grad():
        torch.testing.assert_close(mu, vae.encode(x / 255)[0])
    assert mu.dtype == torch.float32
    assert vae_of(model) is vae


def test_what_has_no_latent_or_no_vae_is_refused() -> None:
    with pytest.raises(RunError, match="predicts from no latent"):
        bottleneck_of(model_of(None))
    encoder = ConvEncoder((3, 8, 8), (4,))
    network = Network(encoder, 3, Classifier(3, 2, hidden=4))
    for bottleneck in (None, Bottleneck(network, network.classifier)):
        with pytest.raises(RunError, match="has no VAE"):
            vae_of(model_of(bottleneck))
