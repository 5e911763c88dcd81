"""Agreement of heads against scikit-learn, scipy and plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from helpers.referees import close
from sitar.functional.disagreement import (
    agreement,
    disagreement_losses,
    marginal_divergence,
    mutual_information,
    smallest_mean,
)

pytestmark = pytest.mark.shapes


def predictions(n: int, heads: int, classes: int, seed: int = 0) -> np.ndarray:
    return softmax(np.random.default_rng(seed).normal(0, 2, (n, heads, classes)), axis=2)


def test_sure_heads_have_the_mutual_information_of_their_classes() -> None:
    random = np.random.default_rng(1)
    first = random.integers(0, 3, 200)
    second = np.where(random.random(200) < 0.6, first, random.integers(0, 3, 200))
    sure = torch.from_numpy(np.eye(3)[np.stack([first, second], 1)])
    close(mutual_information(sure), mutual_info_score(first, second), rtol=1e-10)


@pytest.mark.parametrize("heads", [2, 3, 5])
def test_mutual_information_is_a_mean_over_pairs(heads: int) -> None:
    p = predictions(50, heads, 4)
    pairs = []
    for i in range(heads):
        for j in range(i + 1, heads):
            joint = np.einsum("nc,nd->cd", p[:, i], p[:, j]) / len(p)
            pairs.append(entropy(joint.ravel(), np.outer(p[:, i].mean(0), p[:, j].mean(0)).ravel()))
    close(mutual_information(torch.from_numpy(p)), np.mean(pairs), rtol=1e-10)


def test_independent_heads_have_none() -> None:
    """Every pair of classes occurs once."""
    sure = torch.eye(3)[torch.cartesian_prod(torch.arange(3), torch.arange(3))]
    assert mutual_information(sure).item() == pytest.approx(0, abs=1e-6)


def test_probabilities_of_zero_are_no_nan() -> None:
    logits = torch.tensor([[[200.0, -200.0], [-200.0, 200.0]]] * 3, requires_grad=True)
    p = logits.softmax(2)
    assert (p == 0).any()
    loss = mutual_information(p) + marginal_divergence(p, torch.tensor([0.5, 0.5]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


def test_marginal_divergence_is_that_of_mean_predictions() -> None:
    p, reference = predictions(40, 3, 4), softmax(np.array([0.3, -1.0, 0.0, 1.0]))
    expected = np.mean([entropy(p[:, head].mean(0), reference) for head in range(3)])
    close(marginal_divergence(torch.from_numpy(p), torch.from_numpy(reference)), expected, rtol=1e-10)


def test_agreement_of_two_classes_is_the_log_of_how_probably_they_disagree() -> None:
    p = predictions(30, 2, 2)
    first, second = p[:, 0], p[:, 1]
    disagree = first[:, 0] * second[:, 1] + first[:, 1] * second[:, 0]
    close(agreement(*map(torch.from_numpy, (first, second))), -np.log(disagree + 1e-7).mean(), rtol=1e-10)


def test_agreement_of_many_classes_is_about_the_class_that_the_first_prefers() -> None:
    p = predictions(30, 2, 5)
    best = p[:, 0].argmax(1)
    a, b = p[np.arange(30), 0, best], p[np.arange(30), 1, best]
    expected = -np.log(a * (1 - b) + b * (1 - a) + 1e-7).mean()
    close(agreement(torch.from_numpy(p[:, 0]), torch.from_numpy(p[:, 1])), expected, rtol=1e-10)


@pytest.mark.parametrize("classes", [2, 4])
def test_disagreement_costs_what_two_labels_cost(classes: int) -> None:
    log_p = np.log(predictions(6, 2, classes))
    expected = [-(log_p[:, 0, a] + log_p[:, 1, b]) for a in range(classes) for b in range(classes) if a != b]
    close(disagreement_losses(torch.from_numpy(log_p)), np.stack(expected, 1), rtol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.35, 1.0])
def test_smallest_mean_takes_so_many(share: float) -> None:
    losses = np.random.default_rng(2).exponential(size=(30, 3))
    k = round(30 * share)
    expected = np.sort(losses, axis=0)[:k].mean(0) if k else np.zeros(3)
    close(smallest_mean(torch.from_numpy(losses), torch.tensor(share, dtype=torch.float64)), expected, rtol=1e-12)


def test_mutual_information_is_no_coarser_under_mixed_precision() -> None:
    p = torch.randn(256, 2, 3, generator=torch.Generator().manual_seed(0)).softmax(2)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = mutual_information(p)
    torch.testing.assert_close(mixed, mutual_information(p))
