"""The scores of an audit against numpy, scipy and scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from scipy.stats.contingency import association
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.naive_bayes import CategoricalNB
from torch import Tensor

from sitar.analysis.audit import scores


def samples(n: int = 240, axes: int = 4, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Axes of which the last says most of the label; classes of unlike sizes."""
    random = np.random.default_rng(seed)
    y = random.choice(classes, n, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    mu = random.normal(size=(n, axes)) * [1, 5, 0.1, 2][:axes] + 3 + np.outer(y, np.arange(axes))
    return torch.tensor(mu, dtype=torch.float32), torch.tensor(y)


def test_resamples_keep_the_size_of_every_class() -> None:
    _, y = samples()
    weight = scores.resample(y, 500)
    for c in range(3):
        assert (weight[:, y == c].sum(1) == (y == c).sum()).all()
    assert weight.mean(0).numpy() == pytest.approx(1, abs=0.2)
    assert float(weight.var()) == pytest.approx(1, abs=0.1)
    assert torch.equal(weight, scores.resample(y, 500))
    assert not torch.equal(weight, scores.resample(y, 500, seed=1))
    assert len(weight[:, 0].unique()) > 2


@pytest.mark.parametrize("classes", [2, 3])
def test_correlation_is_numpys(classes: int) -> None:
    mu, y = samples(classes=classes)
    weight = scores.resample(y, 60)  # more than are computed together

    def referee(repeats: np.ndarray) -> np.ndarray:
        x, t = np.repeat(mu.numpy(), repeats, axis=0), np.repeat(y.numpy(), repeats)
        return np.array([[np.corrcoef(axis, t == c)[0, 1] for axis in x.T] for c in range(classes)])

    score = scores.correlation(mu, y, classes, weight)
    signed = referee(np.ones(len(y), dtype=int))
    np.testing.assert_allclose(score.value, np.abs(signed).max(0), atol=1e-5)
    axes, largest = np.arange(mu.shape[1]), np.abs(signed).argmax(0)
    for draw in (0, 55):
        same = referee(weight[draw].numpy().astype(int))[largest, axes] * np.sign(signed[largest, axes])
        np.testing.assert_allclose(score.draws[draw], same.clip(0), atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_wasserstein_is_scipys_between_the_furthest_classes(classes: int) -> None:
    mu, y = samples(classes=classes)
    weight = scores.resample(y, 20)
    score, pairs = scores.wasserstein(mu, y, weight)
    x, t = mu.double().numpy(), y.numpy()
    for j in range(x.shape[1]):
        axis = x[:, j] / x[:, j].std(ddof=1)
        found = {
            (a, b): wasserstein_distance(axis[t == a], axis[t == b])
            for a, b in itertools.combinations(range(classes), 2)
        }
        assert pairs[j] == max(found, key=lambda pair: found[pair])
        assert float(score.value[j]) == pytest.approx(found[pairs[j]])
        a, b = pairs[j]
        w = weight[3].numpy()
        places = np.sort(axis)
        moved = [  # how the share of a class below each place differs from that of the samples
            [np.average(axis[t == c] <= at, weights=w[t == c]) - np.mean(axis[t == c] <= at) for at in places]
            for c in (a, b)
        ]
        far = np.abs(np.subtract(*moved))[:-1] @ np.diff(places)
        assert float(score.draws[3, j]) == pytest.approx(far)


def test_a_constant_axis_scores_nothing() -> None:
    mu, y = samples()
    mu[:, 1] = 0.25
    weight = scores.resample(y, 10)
    assert float(scores.wasserstein(mu, y, weight)[0].value[1]) == 0
    assert float(scores.correlation(mu, y, 3, weight).value[1]) == 0
    assert float(scores.accuracy(mu, y, mu, y, 3, weight).value[1]) == pytest.approx(1 / 3)
    assert scores.separation(mu, y)[1] == 0.5


@pytest.mark.parametrize("classes", [2, 3])
def test_accuracy_is_that_of_a_naive_bayes_on_bins(classes: int) -> None:
    train, train_y = samples(900, classes=classes)
    mu, y = samples(200, classes=classes, seed=1)
    weight = scores.resample(y, 20)
    score = scores.accuracy(train, train_y, mu, y, classes, weight)
    bins = int(np.bincount(train_y).min() ** 0.5)
    assert 2 < bins < scores.MOST_BINS
    for j in range(mu.shape[1]):
        edges = np.quantile(train[:, j].double().numpy(), np.arange(1, bins) / bins)
        model = CategoricalNB(alpha=1, fit_prior=False, min_categories=bins)
        model.fit(np.digitize(train[:, [j]].double(), edges, right=True), train_y)
        predicted = model.predict(np.digitize(mu[:, [j]].double(), edges, right=True))
        assert float(score.value[j]) == pytest.approx(balanced_accuracy_score(y, predicted))
        drawn = balanced_accuracy_score(y, predicted, sample_weight=weight[7])
        assert float(score.draws[7, j]) == pytest.approx(drawn)


def test_an_axis_need_not_be_monotonous() -> None:
    """The label is the distance from 0: no correlation, and yet it can be read off."""
    mu = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
    y = (mu[:, 0].abs() > 0.7).long()
    weight = scores.resample(y[2000:], 10)
    assert float(scores.accuracy(mu[:2000], y[:2000], mu[2000:], y[2000:], 2, weight).value) > 0.9
    assert float(scores.correlation(mu[2000:], y[2000:], 2, weight).value) < 0.1


def test_intervals_hold_what_they_promise() -> None:
    """The true accuracy, known from many samples, lies within 95 % of the intervals of few."""
    random = torch.Generator().manual_seed(0)
    y = torch.randint(2, (60_000,), generator=random)
    mu = torch.randn(60_000, 1, generator=random) + y.unsqueeze(1)
    train, rest = slice(2000), slice(2000, None)
    once = torch.ones(1, 58_000, dtype=torch.float64)
    truth = float(scores.accuracy(mu[train], y[train], mu[rest], y[rest], 2, once).value)
    parts = torch.arange(2000, 52_000).split(200)
    inside = 0
    for part in parts:
        score = scores.accuracy(mu[train], y[train], mu[part], y[part], 2, scores.resample(y[part], 200))
        low, high = score.interval()[:, 0].tolist()
        inside += low <= truth <= high
    assert 0.9 <= inside / len(parts) <= 0.99


@pytest.mark.parametrize("classes", [2, 50])
def test_intervals_hold_their_own_value(classes: int) -> None:
    """Also where axes say nothing: the largest of many correlations, and a distance, would only grow in resamples."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(600) % classes
    mu = torch.randn(600, 20, generator=random)
    weight = scores.resample(y, 200)
    for score in (scores.correlation(mu, y, classes, weight), scores.wasserstein(mu, y, weight)[0]):
        low, high = score.interval()
        assert ((low >= 0) & (low <= score.value) & (score.value <= high)).all()


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
def test_intervals_of_a_distance_hold_the_true_one(shift: float) -> None:
    """Of two normal distributions that is their shift, in standard deviations of both together."""
    truth = shift / (1 + shift**2 / 4) ** 0.5
    y = torch.arange(200) % 2
    random = torch.Generator().manual_seed(0)
    mu = torch.randn(200, 200, generator=random) + shift * y.unsqueeze(1)  # every axis is a trial
    low, high = scores.wasserstein(mu, y, scores.resample(y, 200))[0].interval()
    inside = float(((low <= truth) & (truth <= high)).float().mean())
    assert inside >= 0.9
    assert float((high - low).mean()) < 0.7


def test_separation_is_the_auc_whichever_way() -> None:
    mu, y = samples(classes=2)
    mu[:, 0] = -mu[:, 3]
    found = scores.separation(mu, y)
    assert found[0] == found[3] == pytest.approx(roc_auc_score(y, mu[:, 3]))
    mu, y = samples(classes=3)
    best = max(max(a, 1 - a) for a in (roc_auc_score(y == c, mu[:, 3]) for c in range(3)))
    assert scores.separation(mu, y)[3] == pytest.approx(best)


def test_tie_is_cramers_v() -> None:
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 300)
    attribute = np.where(random.random(300) < 0.6, y, random.integers(0, 4, 300))
    table = np.array([[(attribute[y == c] == a).sum() for a in range(4)] for c in range(3)])
    assert scores.tie(torch.tensor(y), torch.tensor(attribute)) == pytest.approx(association(table, method="cramer"))
    assert scores.tie(torch.tensor(y), torch.tensor(2 * y)) == pytest.approx(1)  # values that never occur do not count
