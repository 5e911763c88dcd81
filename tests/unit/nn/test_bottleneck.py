"""The beta-VAE between features and head: it is SITAR, and it promises what the noise promises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from helpers.referees import batch, close
from sitar.config import ModelConfig
from sitar.data.types import Task, TrainBatch
from sitar.errors import ConfigError, DataError
from sitar.functional.noise import NOISES
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.nn import TargetedBottleneck, consistency_loss

WIDTH = 8


def made(classes: int = 2) -> tuple[Tensor, Tensor]:
    features, labels = batch(classes, latent=WIDTH)
    return features * torch.logspace(-1, 1, WIDTH), labels


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_it_is_sitar(kind: str, classes: int, scale: str) -> None:
    """With the same weights and seed, a loop has the loss of the library's method on features."""
    features, labels = made(classes)
    task = Task((WIDTH,), classes, len(labels), (1,) * classes, (features.mean(0), features.std(0, correction=0)))
    settings = {"noise": kind, "alpha": 0.7, "beta": 3.0, "lambda": 5.0, "vae_scale": scale, "score_floor": True}
    torch.manual_seed(0)
    method = SITAR(SITARConfig.model_validate(settings), ModelConfig(latent_dim=4), task)
    bottleneck = TargetedBottleneck(WIDTH, classes, 4, kind, 0.7, beta=3.0, vae_scale=scale, score_floor=True)  # type: ignore[arg-type]
    weights = {name: value for name, value in method.vae.state_dict().items() if not name.startswith("backbone")}
    bottleneck.vae.load_state_dict(weights)

    torch.manual_seed(1)
    expected = method.loss(TrainBatch(features, labels, torch.arange(len(labels))))
    torch.manual_seed(1)
    latent, noisy, vae_loss = bottleneck(features, labels)
    logits, noisy_logits = method.classifier(latent), method.classifier(noisy)
    change = consistency_loss(logits, noisy_logits)
    close(change.detach(), expected["consistency"].detach().numpy(), rtol=1e-4)
    loss = cross_entropy(noisy_logits, labels) + 5 * change + vae_loss
    close(loss.detach(), expected["loss"].detach().numpy(), rtol=1e-4)
    close(bottleneck.noise.scores, expected["shortcut_score"].numpy(), rtol=1e-4, atol=1e-5)

    bottleneck.eval()
    close(method.classifier(bottleneck(features).latent).detach(), method.logits(features).detach().numpy(), atol=1e-4)


def test_eval_is_the_posterior_mean_and_changes_nothing() -> None:
    features, labels = made()
    bottleneck = TargetedBottleneck(WIDTH, 2, 4)
    bottleneck(features, labels)
    bottleneck.eval()
    before = {name: value.clone() for name, value in bottleneck.state_dict().items()}
    latent, noisy, loss = bottleneck(3 * features)
    assert noisy is latent
    assert torch.equal(bottleneck(3 * features).latent, latent)
    assert loss.isfinite()
    assert all(torch.equal(value, before[name]) for name, value in bottleneck.state_dict().items())


def test_a_state_dict_predicts_the_same() -> None:
    features, labels = made()
    first, second = TargetedBottleneck(WIDTH, 2, 4), TargetedBottleneck(WIDTH, 2, 4)
    first(features, labels)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.eval()(features).latent, first.eval()(features).latent)


def test_a_feature_that_never_varied_says_nothing_later() -> None:
    features, labels = made()
    features[:, 1] = 0.7
    bottleneck = TargetedBottleneck(WIDTH, 2, 4)
    bottleneck(features, labels)
    moved = features.clone()
    moved[:, 1] = 50
    assert torch.equal(bottleneck.eval()(moved).latent, bottleneck(features).latent)


def test_the_reconstruction_does_not_pull_the_features_to_it() -> None:
    """The gradient of the features comes through the encoder. The target of the reconstruction is held fixed."""
    features, labels = made()
    bottleneck = TargetedBottleneck(WIDTH, 2, 4, beta=0.0)
    for parameter in bottleneck.vae.encoder.parameters():
        nn.init.zeros_(parameter)
    features.requires_grad_()
    (gradient,) = torch.autograd.grad(bottleneck(features, labels).loss, features)
    assert not gradient.any()


@pytest.mark.parametrize("kind", NOISES)
def test_it_trains_under_autocast_and_compiled(kind: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    features, labels = made()
    bottleneck, head = TargetedBottleneck(WIDTH, 2, 4, kind, momentum=0.2), nn.Linear(4, 2)
    compiled = torch.compile(bottleneck, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        latent, noisy, vae_loss = compiled(features.bfloat16(), labels)
        logits, noisy_logits = head(latent), head(noisy)
        loss = cross_entropy(noisy_logits, labels) + 10 * consistency_loss(logits, noisy_logits) + vae_loss
    loss.backward()
    assert vae_loss.dtype == torch.float32
    assert all(p.grad is not None and p.grad.isfinite().all() for p in bottleneck.parameters())
    torch._dynamo.reset()


@pytest.mark.parametrize("module", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.float64, torch.bfloat16])
def test_latents_have_the_dtype_of_the_weights_whatever_the_features_have(
    module: torch.dtype, given: torch.dtype
) -> None:
    features, labels = made()
    exact = TargetedBottleneck(WIDTH, 2, 4, alpha=0.0)
    bottleneck, head = TargetedBottleneck(WIDTH, 2, 4, alpha=0.0), nn.Linear(4, 2).to(module)
    bottleneck.load_state_dict(exact.state_dict())
    bottleneck.to(module)
    latent, noisy, vae_loss = bottleneck(features.to(given), labels)
    (head(latent).sum() + head(noisy).sum() + vae_loss).backward()
    assert latent.dtype == noisy.dtype == module
    assert vae_loss.dtype == torch.promote_types(module, torch.float32)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in bottleneck.parameters())
    exact(features, labels)
    found, expected = bottleneck.eval()(features.to(given)).latent, exact.eval()(features).latent
    close(found.detach().float(), expected.detach().numpy(), atol=0.05)


def test_one_sample_is_no_trouble() -> None:
    latent, noisy, loss = TargetedBottleneck(WIDTH, 2)(torch.randn(1, WIDTH), torch.tensor([1]))
    assert torch.equal(noisy, latent)
    assert loss.isfinite()


def test_wrong_inputs_and_settings_are_refused() -> None:
    bottleneck = TargetedBottleneck(WIDTH, 2)
    with pytest.raises(DataError, match="Pool feature maps"):
        bottleneck(torch.randn(4, WIDTH, 2, 2), torch.zeros(4).long())
    with pytest.raises(DataError, match="Pool feature maps"):
        bottleneck.eval()(torch.randn(4, WIDTH + 1))
    with pytest.raises(DataError, match="there are 2 classes"):
        bottleneck.train()(torch.randn(4, WIDTH), torch.full((4,), 5))
    with pytest.raises(DataError, match="needs labels in training mode"):
        bottleneck(torch.randn(4, WIDTH))
    with pytest.raises(ConfigError, match="Known: mean, sum"):
        TargetedBottleneck(WIDTH, 2, vae_scale="max")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="beta is -1"):
        TargetedBottleneck(WIDTH, 2, beta=-1)
    with pytest.raises(ConfigError, match="Known: axis"):
        TargetedBottleneck(WIDTH, 2, kind="axes")
