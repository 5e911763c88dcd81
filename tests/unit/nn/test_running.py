"""Moments that are gathered over batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.referees import batch, close
from sitar.functional.correlation import LabelMoments, label_moments, pooled_moments
from sitar.nn import RunningMoments, TargetedNoise
from sitar.nn.running import NAMES


def same(found: LabelMoments, expected: LabelMoments, **tolerance: float) -> None:
    for name in NAMES:
        close(getattr(found, name), getattr(expected, name).numpy(), **tolerance)


def stream(classes: int = 2) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Samples that drift, and the indices of batches of different sizes."""
    features, labels = batch(classes)
    drift = torch.linspace(0, 2, len(labels)).unsqueeze(1)
    return features + drift, labels, list(torch.arange(len(labels)).split([50, 80, 20, len(labels) - 150]))


@pytest.mark.parametrize("classes", [2, 3])
def test_two_sets_are_pooled(classes: int) -> None:
    features, labels, parts = stream(classes)
    first, second = (label_moments(features[part], labels[part], classes) for part in parts[:2])
    both = torch.cat(parts[:2])
    share = torch.tensor(len(parts[1]) / len(both))
    same(
        pooled_moments(first, second, share), label_moments(features[both], labels[both], classes), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_they_are_the_moments_of_all_samples_with_fading_weights(classes: int) -> None:
    """A batch three steps ago counts (1 - momentum)^3 times as much a sample, also if batches have different sizes."""
    features, labels, parts = stream(classes)
    running = RunningMoments(features.shape[1], classes, 0.3)
    weight = torch.zeros(len(labels))
    for part in parts:
        found = running(label_moments(features[part], labels[part], classes))
        weight = 0.7 * weight
        weight[part] = 1
        same(found, label_moments(features, labels, classes, weight), rtol=1e-4, atol=1e-5)


def test_the_newest_batch_has_the_share_momentum_in_the_long_run() -> None:
    features, labels = batch(2)
    running = RunningMoments(features.shape[1], 2, 0.1)
    for _ in range(200):
        running(label_moments(features, labels, 2))
    close(len(labels) / running.weight, 0.1, rtol=1e-4)
    before = running.mean.clone()
    running(label_moments(features + 1, labels, 2))
    close(running.mean, (before + 0.1).numpy(), atol=1e-4)


def test_small_batches_add_up_to_a_sure_score() -> None:
    """Of 200 features one follows the label. In 16 samples chance gives others a score of 0.6 and more."""
    torch.manual_seed(0)
    alone, gathered = TargetedNoise(200, 2), TargetedNoise(200, 2, momentum=0.02)
    for _ in range(200):
        labels = torch.randint(2, (16,))
        features = torch.randn(16, 200)
        features[:, 0] += labels
        alone(features, labels)
        gathered(features, labels)
    assert alone.scores[1:].max() > 0.5
    assert gathered.scores[1:].max() < 0.15
    truth = 0.5 / np.sqrt(1 + 0.25)
    close(gathered.scores[0], truth, atol=0.06)


def test_the_floor_knows_how_many_samples_there_were() -> None:
    features, labels, parts = stream()
    noise = TargetedNoise(features.shape[1], 2, momentum=0.3, score_floor=True)
    plain = TargetedNoise(features.shape[1], 2, momentum=0.3)
    for part in parts:
        noise(features[part], labels[part])
        plain(features[part], labels[part])
    assert noise.running is not None
    kept = (plain.scores.square() - 1 / noise.running.samples).clamp_min(0).sqrt()
    close(noise.scores, kept.numpy(), atol=1e-5)
    assert noise.running.samples > 80


def test_a_state_dict_continues_where_it_was_saved() -> None:
    features, labels, parts = stream(3)
    first, second = (TargetedNoise(features.shape[1], 3, momentum=0.3) for _ in range(2))
    for part in parts[:2]:
        first(features[part], labels[part])
    second.load_state_dict(first.state_dict())
    for part in parts[2:]:
        for noise in (first, second):
            torch.manual_seed(0)
            noise(features[part], labels[part])
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())
    assert "running.with_label" in first.state_dict()
    assert TargetedNoise(4, 2).state_dict().keys() == {"scores"}


def test_large_means_lose_no_digits() -> None:
    """Sums of squares would: the mean is ten thousand deviations away."""
    features, labels, parts = stream()
    running = RunningMoments(features.shape[1], 2, 0.3)
    near = RunningMoments(features.shape[1], 2, 0.3)
    for part in parts:
        running(label_moments((features[part].double() + 1e4).float(), labels[part], 2))
        near(label_moments(features[part], labels[part], 2))
    close(running.moments.correlation, near.moments.correlation.numpy(), atol=5e-3)


def test_a_module_in_bfloat16_still_gathers() -> None:
    features, labels, parts = stream()
    noise = TargetedNoise(features.shape[1], 2, momentum=0.3).bfloat16()
    exact = TargetedNoise(features.shape[1], 2, momentum=0.3)
    for part in parts:
        assert noise(features[part].bfloat16(), labels[part]).dtype == torch.bfloat16
        exact(features[part], labels[part])
    close(noise.scores.float(), exact.scores.numpy(), atol=0.03)


def test_a_reset_forgets_all_batches() -> None:
    features, labels = batch(3)
    noise = TargetedNoise(features.shape[1], 3, momentum=0.3)
    fresh = {name: value.clone() for name, value in noise.state_dict().items()}
    noise(features, labels)
    assert not torch.equal(noise.state_dict()["running.variance"], fresh["running.variance"])
    noise.reset_parameters()
    assert all(torch.equal(value, fresh[name]) for name, value in noise.state_dict().items())
    assert fresh["running.samples"] == 1
    assert not any(value.any() for name, value in fresh.items() if name != "running.samples")
