"""Checks of every equation against an outside implementation. Each takes the implementation and raises AssertionError.

The tests of a module run them on the real functions, test_mutations on wrong copies, which they must refuse.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fairlearn.metrics import MetricFrame
from scipy import special, stats
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    roc_auc_score,
)
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sitar.config import ModelConfig
from sitar.data import Task, TrainBatch
from sitar.functional.correlation import LabelMoments
from sitar.methods.sitar import SITAR, SITARConfig

DISTRIBUTIONS = ("gaussian", "rademacher", "uniform")
MANY = 200_000


def close(actual, expected, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    assert actual is not None
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else actual
    np.testing.assert_allclose(actual, expected, atol=atol, rtol=rtol)


def batch(num_classes: int, n: int = 300, latent: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Latent means of which some axes follow the label, up or down, one with a large offset."""
    random = np.random.default_rng(seed)
    y = random.choice(num_classes, n, p=np.arange(1, num_classes + 1) / np.arange(1, num_classes + 1).sum())
    mu = random.normal(size=(n, latent)) * random.uniform(0.2, 3, latent)
    mu[:, 0] += 2 * y
    mu[:, 1] -= 3 * (y == num_classes - 1)
    mu[:, 2] += 50
    return torch.tensor(mu, dtype=torch.float32), torch.tensor(y)


def moments_of(correlation: Tensor) -> LabelMoments:
    """Return moments of axes and labels of variance 1 with this correlation."""
    ones = torch.ones_like(correlation)
    zeros = torch.zeros_like(correlation)
    return LabelMoments(zeros[0], zeros[:, 0], ones[0], correlation, ones[:, 0], torch.tensor(1000.0))


def listing(mu: np.ndarray, y: np.ndarray, eps: float = 1e-8) -> np.ndarray:
    """`corr` as the paper's appendix prints it, in float64."""
    centred, target = mu - mu.mean(0, keepdims=True), y - y.mean()
    covariance = (centred * target[:, None]).mean(0)
    variance = (centred**2).mean(0)
    return np.abs(covariance / (np.sqrt(np.maximum(variance, eps)) * np.sqrt((target**2).mean() + eps)))


# Eq. 2


def check_correlation_two_classes(label_correlation: Callable) -> None:
    mu, y = batch(2)
    r = label_correlation(mu, y, 2)
    assert r.shape == (1, 5)
    close(r[0], [stats.pearsonr(axis, y.numpy()).statistic for axis in mu.double().numpy().T])


def check_correlation_many_classes(label_correlation: Callable) -> None:
    mu, y = batch(3)
    r = label_correlation(mu, y, 3)
    assert r.shape == (3, 5)
    rows = [[np.corrcoef(axis, y.numpy() == c)[0, 1] for axis in mu.double().numpy().T] for c in range(3)]
    close(r, rows)
    close(label_correlation(mu, y, 4), [*rows, [0] * 5])


def check_correlation_weighted(label_correlation: Callable) -> None:
    for num_classes in (2, 3):
        mu, y = batch(num_classes)
        weight = torch.linspace(2.5, 0.2, num_classes)[y]
        contrasts = range(1, 2) if num_classes == 2 else range(num_classes)
        expected = []
        for c in contrasts:
            row = []
            for axis in mu.double().numpy().T:
                cov = np.cov(axis, y.numpy() == c, aweights=weight.double().numpy(), ddof=0)
                row.append(cov[0, 1] / math.sqrt(cov[0, 0] * cov[1, 1]))
            expected.append(row)
        close(label_correlation(mu, y, num_classes, weight), expected)
        close(label_correlation(mu, y, num_classes, 7 * weight), expected)


def check_correlation_degenerate(label_correlation: Callable) -> None:
    """A constant axis, a batch of one class and a batch of one sample give 0, not NaN."""
    mu, y = batch(2)
    mu[:, 3] = 0.1
    close(label_correlation(mu, y, 2)[:, 3], [0], atol=1e-3)
    for num_classes in (2, 3):
        close(label_correlation(mu, torch.ones_like(y), num_classes), 0 * np.ones((2 * num_classes - 3, 5)), atol=1e-6)
        close(label_correlation(mu[:1], y[:1], num_classes), 0 * np.ones((2 * num_classes - 3, 5)), atol=1e-6)


def check_correlation_has_no_gradient(label_correlation: Callable) -> None:
    mu, y = batch(2)
    weight = torch.ones(len(y)).requires_grad_()
    assert not label_correlation(mu.requires_grad_(), y, 2).requires_grad
    assert not label_correlation(mu, y, 2, weight).requires_grad


def check_score(shortcut_score: Callable) -> None:
    close(shortcut_score(torch.tensor([[0.2, -0.7]])), [0.2, 0.7])
    close(shortcut_score(torch.tensor([[-0.9, 0.1], [0.2, -0.3], [0.5, 0.25]])), [0.9, 0.3])


def check_paper_score(score_of_batch: Callable) -> None:
    """v(mu, y) of two classes is the paper's listing, also on an axis that has all but collapsed."""
    mu, y = batch(2)
    mu[:, 4] = 2e-5 * (mu[:, 0] - mu[:, 0].mean())
    close(score_of_batch(mu, y), listing(mu.double().numpy(), y.numpy()))


# Eq. 3


def check_unit_noise(unit_noise: Callable) -> None:
    torch.manual_seed(0)
    laws = {
        "gaussian": stats.norm(),
        "uniform": stats.uniform(-math.sqrt(3), 2 * math.sqrt(3)),
    }
    for distribution in DISTRIBUTIONS:
        noise = unit_noise(torch.zeros(MANY // 2, 2), distribution)
        assert noise.shape == (MANY // 2, 2)
        flat = noise.flatten().numpy()
        close(flat.mean(), 0, atol=0.01)
        close(flat.var(), 1, atol=0.02)
        close(np.cov(noise.numpy().T)[0, 1], 0, atol=0.015)
        if distribution == "rademacher":
            assert set(np.unique(flat)) == {-1.0, 1.0}
        else:
            assert stats.kstest(flat, laws[distribution].cdf).pvalue > 1e-3
        assert unit_noise(torch.zeros(3, dtype=torch.float64), distribution).dtype == torch.float64


def _moments(noise: Tensor) -> tuple[np.ndarray, np.ndarray]:
    return noise.double().mean(0).numpy(), np.cov(noise.double().numpy().T)


def check_axis_noise(axis_noise: Callable) -> None:
    torch.manual_seed(0)
    z, score = 3 + 2 * torch.randn(MANY, 3), torch.tensor([0.9, 0.3, 0.0])
    for distribution in DISTRIBUTIONS:
        noise = axis_noise(z, score, distribution)
        assert noise.shape == z.shape
        mean, covariance = _moments(noise)
        close(mean, np.zeros(3), atol=0.01)
        close(covariance, np.diag([0.81, 0.09, 0]), atol=0.01)
        close(np.corrcoef(noise[:, 0].numpy(), z[:, 0].numpy())[0, 1], 0, atol=0.01)


def check_direction_noise(direction_noise: Callable) -> None:
    torch.manual_seed(0)
    z = torch.randn(MANY, 3)
    two = torch.tensor([[0.8, -0.5, 0.1]])
    three = torch.tensor([[0.9, -0.2, 0.0], [-0.5, 0.6, 0.0], [-0.4, -0.4, 0.2]])
    for distribution in DISTRIBUTIONS:
        noise = direction_noise(z, two, distribution)
        mean, covariance = _moments(noise)
        close(mean, np.zeros(3), atol=0.01)
        close(covariance, (two.T @ two).numpy(), atol=0.015)
        close(noise, np.outer(noise[:, 0] / 0.8, two.numpy()), atol=1e-5)
        mean, covariance = _moments(direction_noise(z, three, distribution))
        close(mean, np.zeros(3), atol=0.01)
        close(covariance, (three.T @ three / 2).numpy(), atol=0.015)
    # two rows, each class against the rest, say the same as the one row
    _, covariance = _moments(direction_noise(z, torch.cat([two, -two])))
    close(covariance, (two.T @ two).numpy(), atol=0.015)


def check_swap_noise(swap_noise: Callable) -> None:
    """With any covariance of the latent, written out in whitened coordinates: the shared part is a vector there."""
    random = np.random.default_rng(0)
    mixing = np.array([[1.0, 0.6, 0.0], [0.0, 0.5, 0.2], [0.3, 0.0, 2.0]])
    z = torch.tensor(random.standard_normal((4000, 3)) @ mixing + 3).float()
    before = np.roll(z.double().numpy(), 1, axis=0)
    apart = before - z.double().numpy()
    covariance = np.cov(z.double().numpy().T)
    root = np.linalg.cholesky(covariance)  # z = white @ root^T
    two = torch.tensor([[0.3, -0.2, 0.5]])
    for scale in (1, 1e-3):
        white = np.linalg.solve(root, scale * two[0].double().numpy())
        expected = np.outer(apart @ np.linalg.inv(root).T @ white, root @ white) / np.linalg.norm(white)
        close(swap_noise(z, scale * two), expected, atol=0.01 * scale)
    # z tells the label for certain: a full exchange of the component, and what does not covary with it stays
    unit = two / np.linalg.norm(np.linalg.solve(root, two[0].double().numpy()))
    reader = np.linalg.solve(covariance, unit[0].double().numpy())
    moved = (z + swap_noise(z, unit)).double().numpy()
    close(moved @ reader, before @ reader, atol=0.02)
    rest = np.eye(3) - np.outer(reader, unit[0].double().numpy())
    close(moved @ rest, z.double().numpy() @ rest, atol=0.02)
    R = torch.tensor([[0.4, -0.2, 0.0], [-0.3, 0.3, 0.4], [-0.1, -0.1, -0.4]])
    for scale in (0.5, 2.0):  # shorter than complete, and longer
        white = np.linalg.solve(root, scale * R.double().numpy().T) / math.sqrt(2)
        length = np.linalg.norm(white)
        expected = apart @ np.linalg.inv(root).T @ white @ (root @ white).T / (length * max(length, 1.0))
        close(swap_noise(z, scale * R), expected, atol=0.02)
    close(swap_noise(z, torch.zeros(1, 3)), np.zeros((4000, 3)))


def check_noise_has_no_gradient(noise: Callable[[Tensor], Tensor]) -> None:
    assert not noise(torch.randn(8, 3).requires_grad_()).requires_grad


# Eq. 1 and 4


def check_reparameterise(reparameterise: Callable) -> None:
    torch.manual_seed(0)
    mu = torch.tensor([[1.0, -2.0]]).expand(MANY, 2).clone().requires_grad_()
    log_var = torch.tensor([[0.5, -1.5]]).expand(MANY, 2).clone().requires_grad_()
    z = reparameterise(mu, log_var)
    mean, covariance = _moments(z.detach())
    close(mean, [1, -2], atol=0.02)
    close(covariance, np.diag(np.exp([0.5, -1.5])), atol=0.02)
    z.sum().backward()
    close(mu.grad, np.ones((MANY, 2)))
    close(log_var.grad, 0.5 * (z - mu).detach().numpy())


def check_reconstruction(reconstruction: Callable) -> None:
    random = np.random.default_rng(0)
    for shape in ((5, 3, 4, 6), (4, 7)):
        x, x_hat = random.uniform(size=shape), random.uniform(size=shape)
        squares = [
            sum((a - b) ** 2 for a, b in zip(p.flat, q.flat, strict=True)) for p, q in zip(x, x_hat, strict=True)
        ]
        close(reconstruction(torch.tensor(x_hat), torch.tensor(x)), sum(squares) / len(squares))


def check_gaussian_kl(gaussian_kl: Callable) -> None:
    random = np.random.default_rng(0)
    mu, log_var = torch.tensor(random.normal(size=(6, 4))), torch.tensor(random.normal(size=(6, 4)))
    divergence = kl_divergence(Normal(mu, (log_var / 2).exp()), Normal(torch.zeros_like(mu), torch.ones_like(mu)))
    close(gaussian_kl(mu, log_var), divergence.numpy().sum(1).mean())
    close(gaussian_kl(torch.zeros(3, 2), torch.zeros(3, 2)), 0)


def check_cross_entropy(cross_entropy: Callable) -> None:
    random = np.random.default_rng(0)
    for num_classes in (2, 3):
        logits, y = random.normal(size=(40, num_classes)), random.integers(num_classes, size=40)
        weight = np.linspace(0.3, 2, num_classes)
        probability, labels = special.softmax(logits, 1), range(num_classes)
        close(cross_entropy(torch.tensor(logits), torch.tensor(y)), log_loss(y, probability, labels=labels))
        weighted = log_loss(y, probability, labels=labels, sample_weight=weight[y])
        close(cross_entropy(torch.tensor(logits), torch.tensor(y), torch.tensor(weight)), weighted)


def check_consistency(consistency: Callable) -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(6, 3)), random.normal(size=(6, 3))
    clean, perturbed = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    value = consistency(clean, perturbed)
    close(value, np.mean([np.linalg.norm(p - q) ** 2 for p, q in zip(a, b, strict=True)]))
    value.backward()
    assert perturbed.grad is not None
    assert clean.grad is not None
    close(clean.grad, 2 * (a - b) / 6)
    close(perturbed.grad, -2 * (a - b) / 6)


def sitar_method(**settings: float) -> SITAR:
    torch.manual_seed(0)
    model = ModelConfig(latent_dim=3, channels=(4,), hidden=8)
    config = SITARConfig.model_validate({"alpha": 0.5, "beta": 1.5, "lambda": 3, **settings})
    return SITAR(config, model, Task((3, 8, 8), 2, 64, (32, 32)))


def check_sitar_loss(loss: Callable[[SITAR, TrainBatch], dict[str, Tensor]]) -> None:
    """Lines 5 to 13 of Algorithm 1 in numpy, on the method's own networks and draws."""
    method = sitar_method()
    x, y = torch.rand(64, 3, 8, 8), torch.arange(64) % 2
    x[y == 1] *= 0.2
    torch.manual_seed(1)
    terms = loss(method, TrainBatch(x, y, torch.arange(64)))

    torch.manual_seed(1)
    epsilon, e = torch.randn(64, 3), torch.randn(64, 3)
    with torch.no_grad():
        mu, log_var = method.vae.encode(x)
        z = mu + (log_var / 2).exp() * epsilon
        v = listing(mu.double().numpy(), y.numpy())
        perturbed = z + 0.5 * torch.tensor(v, dtype=torch.float32) * e
        x_hat, clean_logits, perturbed_logits = method.vae.decode(z), method.classifier(z), method.classifier(perturbed)
    kl = kl_divergence(Normal(mu, (log_var / 2).exp()), Normal(0.0, 1.0)).sum(1).mean().item()
    error = ((x - x_hat) ** 2).sum((1, 2, 3)).mean().item()
    robust = log_loss(y.numpy(), special.softmax(perturbed_logits.double().numpy(), 1))
    change = ((clean_logits - perturbed_logits) ** 2).sum(1).mean().item()
    assert v.max() > 0.3
    close(terms["shortcut_score"], v)
    close(terms["consistency"], change, rtol=1e-4)
    close(terms["cross_entropy"], robust)
    close(terms["loss"], error + 1.5 * kl + robust + 3 * change)


# evaluation


def predictions(num_classes: int = 2, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels and groups of which some are easier than others."""
    random = np.random.default_rng(seed)
    y = random.choice(num_classes, n, p=np.arange(1, num_classes + 1) / np.arange(1, num_classes + 1).sum())
    attribute = np.where(random.random(n) < 0.7, y % 2, 1 - y % 2)
    logits = random.normal(size=(n, num_classes)).astype(np.float32)
    logits[np.arange(n), y] += np.where(attribute == y % 2, 1.5, 0.2)
    return logits, y, 2 * y + attribute


def check_softmax(softmax: Callable) -> None:
    logits = np.array([[1.0, 2.0, -3.0], [1000.0, 0.0, 999.0]])
    close(softmax(logits), special.softmax(logits, axis=1))


def check_group_accuracies(group_accuracies: Callable) -> None:
    logits, y, group = predictions()
    frame = MetricFrame(metrics=accuracy_score, y_true=y, y_pred=logits.argmax(1), sensitive_features=group)
    found = group_accuracies(logits.argmax(1) == y, group, 5)
    assert [n for n, _ in found] == [*np.bincount(group), 0]
    close([accuracy for _, accuracy in found[:4]], frame.by_group.to_numpy())
    assert found[4] == (0, None)


def check_worst_group(worst_group: Callable) -> None:
    logits, y, group = predictions()
    frame = MetricFrame(metrics=accuracy_score, y_true=y, y_pred=logits.argmax(1), sensitive_features=group)
    groups = [(int((group == g).sum()), float(frame.by_group[g])) for g in range(4)]
    close(worst_group([*groups, (0, None)]), frame.group_min())
    assert worst_group([(0, None)]) is None
    assert worst_group([]) is None


def check_adjusted_average(adjusted_average: Callable) -> None:
    groups = [(10, 0.5), (30, 1.0), (60, 0.25)]
    close(adjusted_average(groups, [0.6, 0.1, 0.3]), 0.6 * 0.5 + 0.1 * 1.0 + 0.3 * 0.25)
    close(adjusted_average(groups, [6.0, 1.0, 3.0]), 0.475)
    close(adjusted_average([(10, 0.5), (0, None)], [1.0, 0.0]), 0.5)
    assert adjusted_average([(10, 0.5), (0, None)], [0.9, 0.1]) is None
    assert adjusted_average(groups, None) is None
    assert adjusted_average([], [1.0]) is None


def check_class_balanced(class_balanced: Callable) -> None:
    for num_classes in (2, 3):
        logits, y, _ = predictions(num_classes)
        close(class_balanced(logits.argmax(1) == y, y), balanced_accuracy_score(y, logits.argmax(1)))
    close(class_balanced(np.array([True, False, True]), np.array([2, 2, 0])), 0.75)


def check_calibration_error(calibration_error: Callable) -> None:
    for num_classes in (2, 3):
        logits, y, _ = predictions(num_classes)
        probability = special.softmax(3 * logits.astype(np.float64), axis=1)
        correct = logits.argmax(1) == y
        error = 0.0
        for low in range(15):
            inside = [
                i for i, p in enumerate(probability.max(1)) if low / 15 <= p < (low + 1) / 15 or (low == 14 and p == 1)
            ]
            if inside:
                gap = np.mean([correct[i] for i in inside]) - np.mean([probability[i].max() for i in inside])
                error += len(inside) / len(y) * abs(gap)
        assert error > 0.05
        close(calibration_error(probability, correct), error)
    # certainty belongs to the last bin, where these two partly cancel
    close(calibration_error(np.array([[1.0, 0.0], [0.95, 0.05]]), np.array([False, True])), (1 - 0.05) / 2)


def ranking_of(metrics: Any) -> Callable:
    """The three metrics of ranking, by name, of the module that has them."""
    return lambda probability, y: {name: getattr(metrics, name)(probability, y) for name in ("auroc", "auprc", "f1")}


def check_ranking(ranking_metrics: Callable) -> None:
    logits, y, _ = predictions()
    probability = special.softmax(logits.astype(np.float64), axis=1)
    found = ranking_metrics(probability, y)
    close(found["auroc"], roc_auc_score(y, probability[:, 1]))
    close(found["auprc"], average_precision_score(y, probability[:, 1]))
    close(found["f1"], f1_score(y, logits.argmax(1)))
    logits, y, _ = predictions(3)
    probability = special.softmax(logits.astype(np.float64), axis=1)
    found = ranking_metrics(probability, y)
    rest = [(y == c, probability[:, c]) for c in range(3)]
    close(found["auroc"], roc_auc_score(y, probability, multi_class="ovr", average="macro"))
    close(found["auprc"], np.mean([average_precision_score(*pair) for pair in rest]))
    close(found["f1"], f1_score(y, logits.argmax(1), average="macro"))


def check_bootstrap(bootstrap_intervals: Callable) -> None:
    """Against resampling the samples themselves; both are random, so only to a fifth of a standard error."""
    logits, y, group = predictions(n=1000)
    correct = logits.argmax(1) == y
    found = bootstrap_intervals(correct, y, group, resamples=4000)
    random = np.random.default_rng(7)
    draws: dict[str, list[float]] = {"average": [], "class_balanced": [], "worst_group": []}
    for _ in range(4000):
        i = random.integers(len(y), size=len(y))
        draws["average"].append(correct[i].mean())
        draws["class_balanced"].append(np.mean([correct[i][y[i] == c].mean() for c in (0, 1)]))
        draws["worst_group"].append(min(correct[i][group[i] == g].mean() for g in range(4)))
    point = {
        "average": correct.mean(),
        "class_balanced": np.mean([correct[y == c].mean() for c in (0, 1)]),
        "worst_group": min(correct[group == g].mean() for g in range(4)),
    }
    for name, values in draws.items():
        close(found[name], np.quantile(values, [0.025, 0.975]), atol=0.2 * np.std(values), rtol=0)
        assert found[name][0] <= point[name] <= found[name][1]


def quiet(check: Callable, implementation: Callable) -> None:
    """A check of a wrong equation, whose warnings do not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(implementation)
