"""Theorem 1: every term against finite differences and autograd, and the order of what it leaves out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor, nn

from helpers.referees import moments_of
from sitar.config import ModelConfig, section_config
from sitar.data import Task
from sitar.errors import ConfigError
from sitar.functional.cubature import Rule, draws, grid
from sitar.functional.expansion import Expansion, exact, expand, fitted_order, local_orders
from sitar.functional.noise import NOISES, WITH_ROWS, axis_noise, direction_noise
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.models.classifier import Classifier

pytestmark = pytest.mark.shapes

SYMMETRIC = ("gaussian", "rademacher", "uniform")
MOMENTS = {
    "gaussian": lambda k: stats.norm().moment(k),
    "uniform": lambda k: stats.uniform(-math.sqrt(3), 2 * math.sqrt(3)).moment(k),
    "rademacher": lambda k: (1 + (-1) ** k) / 2,
    "skewed": lambda k: 0.2 * 2**k + 0.8 * (-0.5) ** k,
}
ROWS = {
    "axis": torch.tensor([[0.7, 0, 0, 0], [0, 0.3, 0, 0], [0, 0, 0.1, 0]], dtype=torch.float64),
    "direction": torch.tensor([[0.6, -0.4, 0.1, 0.2]], dtype=torch.float64),
    "two directions": torch.tensor([[0.6, -0.4, 0.1, 0.2], [0.1, 0.3, -0.5, 0.0]], dtype=torch.float64),
}
ALPHAS = torch.tensor([2.0**-k for k in range(8)], dtype=torch.float64)
CLASSES = pytest.mark.parametrize("classes", [2, 4])


def case(classes: int, activation: str = "gelu", n: int = 12) -> tuple[Classifier, Tensor, Tensor]:
    """A classifier that bends more than one fresh from initialisation, and latents for it."""
    with torch.random.fork_rng():
        torch.manual_seed(classes)
        f = Classifier(4, classes, 16, activation).double()
        for parameter in f.parameters():
            parameter.data *= 2
        return f.requires_grad_(False), torch.randn(n, 4, dtype=torch.float64), torch.arange(n) % classes


def in_numpy(f: Classifier):
    """The same classifier without torch."""
    (w1, b1), (w2, b2) = [(layer.weight.numpy(), layer.bias.numpy()) for layer in f.layers if hasattr(layer, "weight")]

    def logits(z: np.ndarray) -> np.ndarray:
        hidden = z @ w1.T + b1
        return hidden * special.ndtr(hidden) @ w2.T + b2

    return logits


@CLASSES
@pytest.mark.parametrize("rows", ROWS)
def test_terms_against_finite_differences(classes: int, rows: str) -> None:
    f, z, y = case(classes)
    terms = expand(f, z, y, ROWS[rows])
    logits, A, h = in_numpy(f), ROWS[rows].numpy(), 1e-4
    for i, (point, label) in enumerate(zip(z.numpy(), y.numpy(), strict=True)):
        here = logits(point)
        p = special.softmax(here)
        H, g = np.diag(p) - np.outer(p, p), p - np.eye(classes)[label]
        ahead, behind = (np.array([logits(point + sign * h * a) for a in A]) for sign in (1, -1))
        slopes, bends = (ahead - behind) / (2 * h), (ahead - 2 * here + behind) / h**2
        close = {"rtol": 1e-5, "atol": 1e-6}
        np.testing.assert_allclose(terms.clean[i], special.logsumexp(here) - here[label], **close)
        np.testing.assert_allclose(terms.robust[i], np.trace(slopes @ H @ slopes.T) / 2, **close)
        np.testing.assert_allclose(terms.change[i], np.trace(slopes @ slopes.T), **close)
        np.testing.assert_allclose(terms.curvature[i], (bends @ g).sum() / 2, **close)


@CLASSES
def test_terms_against_autograd(classes: int) -> None:
    """Half the trace of Sigma times the Hessian of the cross-entropy by z is what noise adds to it."""
    f, z, y = case(classes)
    A = ROWS["two directions"]
    sigma = A.T @ A
    terms = expand(f, z, y, A)
    for i in range(len(z)):
        hessian = torch.autograd.functional.hessian(
            lambda p, i=i: nn.functional.cross_entropy(f(p[None]), y[i : i + 1]), z[i]
        )
        jacobian = torch.autograd.functional.jacobian(lambda p: f(p[None])[0], z[i])
        torch.testing.assert_close(terms.robust[i] + terms.curvature[i], (sigma @ hessian).trace() / 2)
        torch.testing.assert_close(terms.change[i], (jacobian @ sigma @ jacobian.T).trace())


def test_terms_have_gradients() -> None:
    """By the latent and by the weights, as training on them needs."""
    f, z, y = case(3, n=3)
    weights = dict(f.named_parameters())

    def terms(z: Tensor, *values: Tensor) -> Expansion:
        state = dict(zip(weights, values, strict=True))
        return expand(lambda p: torch.func.functional_call(f, state, p), z, y, ROWS["two directions"])

    inputs = [tensor.clone().requires_grad_() for tensor in (z, *weights.values())]
    assert torch.autograd.gradcheck(terms, inputs)


def remainders(distribution: str, classes: int, activation: str = "gelu", lambda_: float = 10.0) -> Tensor:
    f, z, y = case(classes, activation)
    A, rule = ROWS["axis"], grid(distribution, 3)
    terms = expand(f, z, y, A)
    gaps = [exact(f, z, y, A, a, rule).total(lambda_) - terms.at(a).total(lambda_) for a in ALPHAS.tolist()]
    return torch.stack([gap.abs().mean() for gap in gaps])


@CLASSES
@pytest.mark.parametrize("lambda_", [0.0, 10.0])
@pytest.mark.parametrize("distribution", SYMMETRIC)
def test_symmetric_noise_leaves_order_four(distribution: str, classes: int, lambda_: float) -> None:
    order = fitted_order(ALPHAS, remainders(distribution, classes, lambda_=lambda_), 1e-13)
    assert order == pytest.approx(4, abs=0.05)


@CLASSES
def test_skewed_noise_leaves_order_three(classes: int) -> None:
    assert fitted_order(ALPHAS, remainders("skewed", classes), 1e-13) == pytest.approx(3, abs=0.05)


@CLASSES
def test_relu_has_no_curvature_and_no_such_order(classes: int) -> None:
    """Its kinks are not smooth: what is left over falls more slowly while there is one within reach of the noise."""
    f, z, y = case(classes, "relu")
    terms = expand(f, z, y, ROWS["axis"])
    assert (terms.curvature == 0).all()
    assert terms.change.min() > 0
    gelu, z, y = case(classes)
    assert expand(gelu, z, y, ROWS["axis"]).curvature.abs().max() > 1e-3
    order = fitted_order(ALPHAS[:4], remainders("gaussian", classes, "relu")[:4])
    assert order is not None
    assert order < 3.5


def test_lambda_enters_linearly_and_alpha_squared() -> None:
    f, z, y = case(2)
    terms = expand(f, z, y, ROWS["axis"])
    one, ten = (terms.at(0.5).total(lambda_) for lambda_ in (1.0, 10.0))
    torch.testing.assert_close(ten - one, 9 * 0.25 * terms.change)
    torch.testing.assert_close(terms.at(2.0).consistency, 16 * terms.at(0.5).consistency)
    torch.testing.assert_close(terms.at(0.0).total(10.0), nn.functional.cross_entropy(f(z), y, reduction="none"))


def test_exact_is_the_mean_over_draws() -> None:
    f, z, y = case(3)
    A, alpha = ROWS["axis"], 0.8
    e = np.random.default_rng(0).normal(size=(40_000, 3)) @ A.numpy() * alpha
    perturbed = in_numpy(f)(z.numpy()[:, None] + e)
    losses = special.logsumexp(perturbed, 2) - np.take_along_axis(perturbed, y.numpy()[:, None, None], 2)[..., 0]
    changes = ((perturbed - in_numpy(f)(z.numpy())[:, None]) ** 2).sum(2)
    ours = exact(f, z, y, A, alpha, grid("gaussian", 3))
    for mine, theirs in ((ours.cross_entropy, losses), (ours.consistency, changes)):
        error = theirs.std(1) / math.sqrt(theirs.shape[1])
        assert (np.abs(mine.numpy() - theirs.mean(1)) < 4.5 * error).all()


@pytest.mark.parametrize("distribution", MOMENTS)
def test_grids_have_the_moments_of_their_distribution(distribution: str) -> None:
    points, weights = grid(distribution, 2, nodes=6)
    assert len(points) == (36 if distribution in ("gaussian", "uniform") else 4)
    for i in range(5):
        for j in range(5):
            ours = float((weights * points[:, 0] ** i * points[:, 1] ** j).sum())
            assert ours == pytest.approx(MOMENTS[distribution](i) * MOMENTS[distribution](j), abs=1e-12)


@pytest.mark.parametrize("distribution", MOMENTS)
def test_draws_are_balanced(distribution: str) -> None:
    rule = draws(distribution, 5, 512)
    assert rule.points.shape == (512, 5)
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(rule.weights @ rule.points, torch.zeros(5).double(), **close)
    torch.testing.assert_close((rule.weights[:, None] * rule.points).T @ rule.points, torch.eye(5).double(), **close)
    third, fourth = (float((rule.weights @ rule.points**k).mean()) for k in (3, 4))
    assert third == pytest.approx(MOMENTS[distribution](3), abs=0.05 if distribution == "skewed" else 1e-12)
    assert fourth == pytest.approx(MOMENTS[distribution](4), rel=0.1)
    assert all(map(torch.equal, rule, draws(distribution, 5, 512)))


@pytest.mark.parametrize("distribution", MOMENTS)
def test_draws_agree_with_the_grid(distribution: str) -> None:
    f, z, y = case(3)
    a, b = (
        exact(f, z, y, ROWS["axis"], 0.5, rule).total(10.0) for rule in (grid(distribution, 3), draws(distribution, 3))
    )
    torch.testing.assert_close(a, b, rtol=0.01, atol=0)
    terms = expand(f, z, y, ROWS["axis"])
    rule = draws(distribution, 3)
    gaps = torch.stack(
        [(exact(f, z, y, ROWS["axis"], a, rule).total(10.0) - terms.at(a).total(10.0)).abs().mean() for a in
         ALPHAS.tolist()]
    )  # fmt: skip
    assert fitted_order(ALPHAS, gaps, 1e-13) == pytest.approx(3 if distribution == "skewed" else 4, abs=0.05)


def test_too_few_draws_cannot_be_balanced() -> None:
    with pytest.raises(ValueError, match="take 10 or more"):
        draws("gaussian", 5, 9)


def test_fitted_order() -> None:
    alpha = torch.tensor([0.125, 1.0, 0.5, 0.25, 2.0])
    assert fitted_order(alpha, 3 * alpha**2.5) == pytest.approx(2.5, abs=1e-4)
    bent = 3 * alpha.double() ** 4 + (alpha == 2) * 7.0  # the largest alpha is far from the limit
    assert fitted_order(alpha, bent) == pytest.approx(4)
    rounded = torch.where(alpha < 0.3, 1e-16, alpha.double() ** 4)
    assert fitted_order(alpha, rounded, floor=1e-15) == pytest.approx(4)
    assert fitted_order(alpha, torch.zeros(5)) is None
    assert fitted_order(alpha, torch.tensor([0.0, 0, 0, 0, 1])) is None


def test_local_orders_differ_where_two_powers_cancel() -> None:
    alpha = torch.tensor([1.0, 0.125, 0.5, 0.25, 2.0], dtype=torch.float64)
    assert local_orders(alpha, 3 * alpha**4) == pytest.approx([4, 4, 4])
    slopes = local_orders(alpha, (alpha**3 - 1.5 * alpha**4).abs())  # of one sign up to alpha = 2/3
    assert slopes[0] == pytest.approx(math.log2((0.25**3 - 1.5 * 0.25**4) / (0.125**3 - 1.5 * 0.125**4)))
    assert max(slopes) - min(slopes) > 1
    assert local_orders(alpha, torch.zeros(5)) == []


@pytest.mark.parametrize("contrasts", [1, 3])
def test_rows_have_the_covariance_of_the_noise(contrasts: int) -> None:
    correlation = torch.tensor([[0.8, -0.5, 0.1], [-0.2, 0.6, 0.0], [-0.6, -0.1, -0.1]])[:contrasts]
    score = correlation.abs().amax(0)
    torch.manual_seed(0)
    z = torch.zeros(200_000, 3)
    noises = {
        "axis": axis_noise(z, score),
        "direction": direction_noise(z, correlation),
        "isotropic": axis_noise(z, torch.ones(3)),
    }
    for name, noise in noises.items():
        A = NOISES[name].rows(moments_of(correlation))
        torch.testing.assert_close(A.T @ A, torch.cov(noise.T), rtol=0, atol=0.015)
    with pytest.raises(ValueError, match="swap"):
        NOISES["swap"].rows(moments_of(correlation))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", WITH_ROWS)
def test_analytic_training_is_sampled_training_in_the_mean(noise: str, weighted: bool) -> None:
    """Terms and gradients of the classifier, at a noise so small that the theorem is close."""
    torch.manual_seed(0)
    task, model = Task((3, 8, 8), 2, 30, (10, 20)), ModelConfig(latent_dim=3, channels=(4,), hidden=8)
    options = {"noise": noise, "alpha": 0.05, "lambda": 10.0, "class_weight": "balanced" if weighted else None}
    sampled = SITAR(SITARConfig(**options), model, task)
    analytic = SITAR(SITARConfig(objective="analytic", **options), model, task)
    for parameter in sampled.classifier.parameters():
        parameter.data *= 3
    analytic.load_state_dict(sampled.state_dict())
    z, y = torch.randn(30, 3), torch.tensor([0, 1, 1] * 10)
    moments = moments_of(torch.tensor([[0.8, -0.5, 0.1]]))
    repeats = 4000
    seen = []
    for method, times in ((analytic, 1), (sampled, repeats)):
        terms = method.classification(z.repeat(times, 1), y.repeat(times), moments)
        loss = terms["cross_entropy"] + method.config.lambda_ * terms["consistency"]
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(method.classifier.parameters()))])
        seen.append((terms["cross_entropy"], terms["consistency"], gradient))
    (robust, change, gradient), (mean_robust, mean_change, mean_gradient) = seen
    torch.testing.assert_close(robust, mean_robust, rtol=1e-3, atol=0)
    torch.testing.assert_close(change, mean_change, rtol=0.02, atol=0)
    assert (gradient - mean_gradient).norm() < 0.02 * gradient.norm()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "swap"}, "use noise=axis, direction or isotropic, or objective=sampled"),
        ({"noise_distribution": "uniform"}, "leave noise_distribution out"),
        ({"objective": "analytical"}, "'sampled' or 'analytic'"),
    ],
)
def test_what_the_closed_form_cannot_do_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        section_config("method", {"name": "sitar", "objective": "analytic", **options})


def test_a_rule_is_points_and_weights() -> None:
    """What `exact` is given may come from elsewhere: here the noise is always the same."""
    f, z, y = case(2)
    one = Rule(torch.ones(1, 1).double(), torch.ones(1).double())
    moved = exact(f, z, y, ROWS["direction"], 0.3, one)
    expected = nn.functional.cross_entropy(f(z + 0.3 * ROWS["direction"]), y, reduction="none")
    torch.testing.assert_close(moved.cross_entropy, expected)
