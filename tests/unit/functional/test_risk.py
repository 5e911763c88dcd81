"""Risks, penalties, last layers and neighbours against numpy, scipy, scikit-learn and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.referees import close
from sitar.functional.last_layer import approach_last_layer, fit_last_layer
from sitar.functional.losses import sample_cross_entropy
from sitar.functional.neighbours import CHUNK, class_votes
from sitar.functional.risk import cvar, group_risks, mean_risk, risk_variance, scale_gradient
from sitar.functional.smoothness import gradient_change, jacobian_norm

pytestmark = pytest.mark.shapes


def numeric_gradient(f: Callable[[np.ndarray], float], x: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Central differences, one element at a time."""
    result = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[place] = h
        result[place] = (f(x + step) - f(x - step)) / (2 * h)
    return result


def losses_of(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=n)


@pytest.mark.parametrize("n", [1, 7, 10, 64])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.33, 0.5, 0.77, 1.0])
def test_cvar_is_its_sorted_and_its_dual_definition(n: int, share: float) -> None:
    """The dual is convex and piecewise linear in eta with corners at the losses: its minimum is at one of them."""
    losses = losses_of(n)
    actual = cvar(torch.tensor(losses), share)
    left, total = share * n, 0.0
    for loss in sorted(losses, reverse=True):
        part = min(1.0, left)
        total, left = total + part * loss, left - part
        if left <= 0:
            break
    close(actual, total / (share * n), rtol=1e-6)
    close(actual, min(eta + np.maximum(losses - eta, 0).mean() / share for eta in losses), rtol=1e-6)


def test_cvar_between_its_ends() -> None:
    losses = torch.tensor(losses_of(20))
    close(cvar(losses, 1.0), losses.mean().item())
    close(cvar(losses, 1e-6), losses.max().item())
    close(cvar(losses, 0.05), losses.max().item())
    values = [cvar(losses, share).item() for share in np.linspace(0.05, 1, 30)]
    assert all(a > b for a, b in pairwise(values))


def test_gradient_of_cvar_goes_to_the_worst() -> None:
    losses = torch.tensor([0.1, 3.0, 2.0, 0.5], dtype=torch.float64, requires_grad=True)
    cvar(losses, 0.375).backward()
    close(losses.grad, [0, 1 / 1.5, 0.5 / 1.5, 0])


def test_group_risks() -> None:
    random = np.random.default_rng(0)
    losses, group = random.exponential(size=40), random.choice([0, 2, 5], 40, p=[0.7, 0.2, 0.1])
    risks, present = group_risks(torch.tensor(losses), torch.tensor(group), 7)
    assert present.tolist() == [g in (0, 2, 5) for g in range(7)]
    close(risks, [losses[group == g].mean() if g in (0, 2, 5) else 0 for g in range(7)])
    there = [losses[group == g].mean() for g in (0, 2, 5)]
    close(mean_risk(risks, present), np.mean(there))
    close(risk_variance(risks, present), np.var(there))


def test_absent_groups_do_not_matter_and_one_group_has_no_variance() -> None:
    losses, group = torch.tensor(losses_of(10)), torch.arange(10) % 3
    few = group_risks(losses, group, 3)
    many = group_risks(losses, 2 * group + 1, 9)
    close(mean_risk(*many), mean_risk(*few).item())
    close(risk_variance(*many), risk_variance(*few).item())
    close(risk_variance(*group_risks(losses, torch.full((10,), 2), 4)), 0.0)


def environments(classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels, and environments of different size of which number 1 is empty."""
    random = np.random.default_rng(classes)
    return 2 * random.normal(size=(12, classes)), random.integers(0, classes, 12), np.repeat([0, 2, 3], [6, 4, 2])


def cross_entropies(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Also of complex logits, for the derivative by a complex step."""
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]


def vrex_by_hand(logits: np.ndarray, y: np.ndarray, e: np.ndarray) -> float:
    risks = [cross_entropies(logits[e == k], y[e == k]).mean() for k in np.unique(e)]
    return float(np.mean([(risk - np.mean(risks)) ** 2 for risk in risks]))


def irm_by_hand(logits: np.ndarray, y: np.ndarray, e: np.ndarray) -> float:
    """Mean over environments of the squared derivative by w of the risk of w * logits, at w = 1."""
    slopes = [cross_entropies((1 + 1e-30j) * logits[e == k], y[e == k]).mean().imag / 1e-30 for k in np.unique(e)]
    return float(np.mean(np.square(slopes)))


def vrex_penalty(logits: Tensor, y: Tensor, e: Tensor) -> Tensor:
    return risk_variance(*group_risks(sample_cross_entropy(logits, y), e, 4))


def irm_penalty(logits: Tensor, y: Tensor, e: Tensor) -> Tensor:
    slopes, present = group_risks(scale_gradient(logits, y), e, 4)
    return mean_risk(slopes.square(), present)


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize(
    ("penalty", "by_hand"), [(vrex_penalty, vrex_by_hand), (irm_penalty, irm_by_hand)], ids=["vrex", "irm"]
)
def test_penalty_and_its_gradient(penalty: Callable[..., Tensor], by_hand: Callable[..., float], classes: int) -> None:
    logits, y, e = environments(classes)
    tensor = torch.tensor(logits, requires_grad=True)
    value = penalty(tensor, torch.tensor(y), torch.tensor(e))
    assert by_hand(logits, y, e) > 1e-3
    close(value, by_hand(logits, y, e), rtol=1e-9, atol=0)
    value.backward()
    close(tensor.grad, numeric_gradient(lambda x: by_hand(x, y, e), logits), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_scale_gradient_is_a_derivative(classes: int) -> None:
    random = torch.Generator().manual_seed(classes)
    logits = 3 * torch.randn(15, classes, generator=random, dtype=torch.float64)
    y = torch.randint(0, classes, (15,), generator=random)
    slope, h = scale_gradient(logits, y), 1e-5
    up, down = (F.cross_entropy(w * logits, y, reduction="none") for w in (1 + h, 1 - h))
    close(slope, ((up - down) / (2 * h)).numpy(), rtol=1e-8, atol=1e-9)
    close(slope.mean(), ((up.mean() - down.mean()) / (2 * h)).item(), rtol=1e-8, atol=1e-9)


def small_network(outputs: int) -> nn.Sequential:
    torch.manual_seed(outputs)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_jacobian_norm_is_the_frobenius_norm_in_expectation(outputs: int) -> None:
    network = small_network(outputs)
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    per_sample = torch.stack([torch.autograd.functional.jacobian(lambda v: network(v[None])[0], v) for v in x])
    expected = per_sample.square().flatten(1).sum(1).mean().item()
    torch.manual_seed(0)
    if outputs == 1:  # the only unit vectors are +1 and -1
        close(jacobian_norm(network, x, 1), expected, rtol=1e-9)
        return
    draws = np.array([jacobian_norm(network, x, 20).item() for _ in range(60)])
    assert draws.std() > 0
    assert abs(draws.mean() - expected) < 4 * draws.std() / np.sqrt(len(draws))
    close(draws.mean(), expected, rtol=0.06)


def test_jacobian_norm_of_a_linear_map() -> None:
    """Orthogonal rows of one length: every projection gives the norm itself; it does not grow with projections."""
    W = 3 * torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0][:4]
    x = torch.randn(8, 6, dtype=torch.float64)
    for projections in (1, 2, 5):
        close(jacobian_norm(lambda v: v @ W.T, x, projections), 9 * 4, rtol=1e-9)


def numeric_parameter_gradient(value: Callable[[], float], parameter: nn.Parameter) -> np.ndarray:
    def at(array: np.ndarray) -> float:
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(array))
        return value()

    start = parameter.detach().numpy().copy()
    gradient = numeric_gradient(at, start)
    at(start)
    return gradient


def test_gradient_of_the_jacobian_norm_reaches_the_parameters() -> None:
    network = small_network(3)
    x = torch.randn(4, 2, 3, dtype=torch.float64)

    def value() -> Tensor:
        torch.manual_seed(7)
        return jacobian_norm(network, x, 2)

    for layer in (network[1], network[3]):
        (gradient,) = torch.autograd.grad(value(), layer.weight)
        assert gradient.abs().max() > 1e-3
        close(gradient, numeric_parameter_gradient(lambda: value().item(), layer.weight), rtol=1e-5, atol=1e-8)


def test_gradient_change_of_a_quadratic_is_h_squared_Hd_squared() -> None:  # noqa: N802
    random = np.random.default_rng(0)
    A = random.normal(size=(5, 5))
    H, b, x = A @ A.T, random.normal(size=5), random.normal(size=(7, 5))
    matrix, vector = torch.tensor(H), torch.tensor(b)

    def total(v: Tensor) -> Tensor:
        return (0.5 * (v @ matrix * v).sum(1) + v @ vector).sum()

    for h in (0.1, 1.5):
        expected = []
        for point in x:
            sign = np.sign(H @ point + b)
            expected.append(h**2 * np.square(H @ (sign / np.linalg.norm(sign))).sum())
        close(gradient_change(total, torch.tensor(x), h), np.mean(expected), rtol=1e-9)


def test_gradient_change_is_a_loop_over_samples() -> None:
    network = small_network(3)
    x, y = torch.randn(6, 2, 3, dtype=torch.float64), torch.arange(6) % 3

    def by_hand() -> Tensor:
        parts = []
        for point, label in zip(x, y, strict=True):
            gradients = []
            at = point
            for _ in range(2):
                at = at.detach().requires_grad_()
                loss = F.cross_entropy(network(at[None]), label[None])
                gradients.append(torch.autograd.grad(loss, at, create_graph=True)[0])
                sign = gradients[0].detach().sign()
                at = point + 0.8 * sign / sign.norm()
            parts.append((gradients[1] - gradients[0]).square().sum())
        return torch.stack(parts).mean()

    def ours() -> Tensor:
        return gradient_change(lambda v: F.cross_entropy(network(v), y, reduction="sum"), x, 0.8)

    close(ours(), by_hand().item(), rtol=1e-9)
    layers = [network[1].weight, network[3].weight]
    for a, b in zip(*(torch.autograd.grad(f(), layers) for f in (ours, by_hand)), strict=True):
        close(a, b.numpy(), rtol=1e-8, atol=1e-12)
    weight = network[1].weight
    (gradient,) = torch.autograd.grad(ours(), weight)
    close(gradient, numeric_parameter_gradient(lambda: ours().item(), weight), rtol=1e-4, atol=1e-7)


def test_where_nothing_changes_nothing_is_penalised() -> None:
    x = torch.randn(3, 2, 2)
    flat = torch.zeros(4, 3, requires_grad=True)
    for penalty in (
        jacobian_norm(lambda v: v.flatten(1) @ flat, x),
        gradient_change(lambda v: (v.flatten(1) @ flat).sum(), x, 1.0),
    ):
        assert penalty == 0
        (gradient,) = torch.autograd.grad(penalty, flat)
        assert torch.isfinite(gradient).all()


def regression_problem(classes: int, n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(classes)
    y = random.integers(0, classes, n)
    features = random.normal(size=(n, 4)) + 0.7 * random.normal(size=(classes, 4))[y]
    return features, y, random.uniform(0.1, 3, n)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("l2", [0.05, 2.0])
def test_last_layer_is_scikit_learns(classes: int, l2: float) -> None:
    """Pulled to zero, bias included: an extra feature of ones without intercept. Two classes share one vector there,
    whose halves are ours, so that the same l2 is half as strong."""
    features, y, sample_weight = regression_problem(classes)
    ones = np.column_stack([features, np.ones(len(y))])
    c = 1 / l2 if classes == 2 else 1 / (2 * l2)
    model = LogisticRegression(C=c, fit_intercept=False, tol=1e-10, max_iter=5000)
    coefficients = model.fit(ones, y, sample_weight).coef_
    expected = np.concatenate([-coefficients / 2, coefficients / 2]) if classes == 2 else coefficients
    weight, bias = fit_last_layer(
        torch.tensor(features), torch.tensor(y), torch.tensor(sample_weight),
        torch.zeros(classes, 4, dtype=torch.float64), torch.zeros(classes, dtype=torch.float64), l2=l2,
    )  # fmt: skip
    close(np.column_stack([weight.numpy(), bias.numpy()]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 1 / 80])
def test_last_layer_stays_close_to_where_it_starts(scale: float) -> None:
    features, y, sample_weight = regression_problem(3)
    sample_weight = scale * sample_weight
    random = np.random.default_rng(1)
    start = random.normal(size=(3, 5))

    def objective(theta: np.ndarray) -> float:
        theta = theta.reshape(3, 5)
        scores = log_softmax(features @ theta[:, :4].T + theta[:, 4], 1)
        return -sample_weight @ scores[np.arange(len(y)), y] + 0.01 * np.square(theta - start).sum()

    best = minimize(objective, start.ravel(), tol=1e-12).x.reshape(3, 5)
    weight, bias = torch.tensor(start[:, :4]), torch.tensor(start[:, 4])
    arguments = (torch.tensor(features), torch.tensor(y), torch.tensor(sample_weight), weight, bias)
    fitted = torch.column_stack(fit_last_layer(*arguments, l2=0.01))
    assert np.abs(best - start).max() > 0.1
    close(fitted, best, rtol=1e-3, atol=1e-3)
    held = torch.column_stack(fit_last_layer(*arguments, l2=1e9))
    close(held, start, rtol=0, atol=1e-5)
    assert torch.equal(weight, torch.tensor(start[:, :4]))


def test_many_steps_lead_to_the_solution() -> None:
    features, y, sample_weight = (torch.tensor(a) for a in regression_problem(3))
    problem = (features, y, sample_weight / 80, torch.zeros(3, 4).double(), torch.ones(3).double())
    with torch.no_grad():
        steps = approach_last_layer(*problem, l2=0.1, steps=300, rate=0.5)
    for near, exact in zip(steps, fit_last_layer(*problem, l2=0.1), strict=True):
        close(near, exact.numpy(), atol=1e-4)
    once = approach_last_layer(*problem, l2=0.1, steps=1, rate=0.5, longest=1e-3)
    away = torch.cat([once[0].flatten(), once[1] - 1])
    close(away.norm(), 0.5e-3, rtol=1e-2, atol=0)


def test_last_layer_where_gradients_are_off() -> None:
    """A fit runs without gradient; the answer has the type of the layer."""
    features, y, sample_weight = (torch.tensor(a) for a in regression_problem(3))
    with torch.no_grad():
        weight, bias = fit_last_layer(features.float(), y, sample_weight, torch.zeros(3, 4), torch.zeros(3), l2=0.1)
    assert weight.dtype == bias.dtype == torch.float32
    assert weight.abs().max() > 0.1
    assert not weight.requires_grad


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("queries", [3, CHUNK + 17])
def test_votes_are_scikit_learns(k: int, queries: int) -> None:
    random = np.random.default_rng(k)
    points, y = random.normal(size=(60, 3)), random.integers(0, 4, 60)
    query = random.normal(size=(queries, 3))
    votes = class_votes(torch.tensor(query), torch.tensor(points), torch.tensor(y), 4, k)
    assert votes.shape == (queries, 4)
    close(votes, k * KNeighborsClassifier(k).fit(points, y).predict_proba(query))


def test_votes_divided_by_the_size_of_their_class() -> None:
    """Where a class is rare, three neighbours of nine can be most of what there is of it."""
    random = np.random.default_rng(3)
    y = np.array([0] * 45 + [1] * 15)
    points, query = random.normal(size=(60, 2)), random.normal(size=(200, 2))
    weight = torch.tensor([60 / (2 * 45), 60 / (2 * 15)], dtype=torch.float64)
    votes = class_votes(torch.tensor(query), torch.tensor(points), torch.tensor(y), 2, 9, weight)
    by_hand = []
    for q in query:
        nearest = sorted(range(60), key=lambda i: ((points[i] - q) ** 2).sum())[:9]
        by_hand.append([sum(y[i] == c for i in nearest) / sum(y == c) for c in (0, 1)])
    close(votes, 30 * np.array(by_hand), rtol=1e-9)
    plain = class_votes(torch.tensor(query), torch.tensor(points), torch.tensor(y), 2, 9)
    assert (plain.argmax(1) != votes.argmax(1)).sum() > 40


def test_votes_of_float_latents_away_from_zero() -> None:
    """Latents need not be centred: the distances, not the lengths, must decide."""
    random = np.random.default_rng(0)
    points = (random.normal(size=(300, 4)) + 30).astype(np.float32)
    query = (random.normal(size=(100, 4)) + 30).astype(np.float32)
    y = random.integers(0, 2, 300)
    votes = class_votes(torch.tensor(query), torch.tensor(points), torch.tensor(y), 2, 1)
    expected = KNeighborsClassifier(1).fit(points.astype(float), y).predict_proba(query.astype(float))
    assert (votes.numpy() == expected).mean() > 0.99


def test_votes_of_no_queries() -> None:
    votes = class_votes(torch.zeros(0, 3), torch.randn(40, 3), torch.arange(40) % 2, 2, 5)
    assert votes.shape == (0, 2)


def test_group_risks_keep_their_digits_in_mixed_precision() -> None:
    losses, group = torch.tensor(losses_of(64), dtype=torch.float32), torch.arange(64) % 2
    exact = group_risks(losses, group, 2)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = group_risks(losses, group, 2)
        close(mixed[0], exact[0].numpy())
        close(risk_variance(*mixed), risk_variance(*exact).item(), rtol=1e-3)
