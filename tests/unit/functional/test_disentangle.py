"""Total correlation: beta-TCVAE's estimate (Chen et al., 2018) and FactorVAE's discriminator (Kim and Mnih, 2018)."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.referees import close
from sitar.config import ModelConfig, TrainConfig
from sitar.data import Task, TrainBatch, TrainSplit
from sitar.functional.disentangle import density_ratio, discrimination, gaussian_log_density, kl_parts, permute_axes
from sitar.methods import GradientPhase
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.training.optimise import build_optimiser
from sitar.training.step import EagerStep

pytestmark = pytest.mark.shapes

N = 24


def latents(n: int = 9, axes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    mu, log_var, noise = (torch.randn(n, axes, generator=random, dtype=torch.float64) for _ in range(3))
    return mu + (log_var / 2).exp() * noise, mu, log_var


def parts_by_hand(z: np.ndarray, mu: np.ndarray, log_var: np.ndarray, num_train: int) -> tuple[float, float, float]:
    """Minibatch weighted sampling: log q(z_i) ~ log 1/(N M) sum_j q(z_i | x_j), likewise for every axis alone."""
    m, d = z.shape
    sd = np.exp(log_var / 2)
    information, correlation, rest = [], [], []
    for i in range(m):
        log_joint = math.log(sum(math.prod(norm.pdf(z[i], mu[j], sd[j])) for j in range(m)) / (num_train * m))
        log_axes = sum(
            math.log(sum(norm.pdf(z[i, k], mu[j, k], sd[j, k]) for j in range(m)) / (num_train * m)) for k in range(d)
        )
        information.append(norm.logpdf(z[i], mu[i], sd[i]).sum() - log_joint)
        correlation.append(log_joint - log_axes)
        rest.append(log_axes - norm.logpdf(z[i]).sum())
    return float(np.mean(information)), float(np.mean(correlation)), float(np.mean(rest))


def test_log_density() -> None:
    z, mu, log_var = latents()
    close(gaussian_log_density(z, mu, log_var), norm.logpdf(z, mu, (log_var / 2).exp()), rtol=1e-9)


@pytest.mark.parametrize("num_train", [1, 9, 5000])
def test_kl_parts_are_a_plain_loop(num_train: int) -> None:
    z, mu, log_var = latents()
    expected = parts_by_hand(z.numpy(), mu.numpy(), log_var.numpy(), num_train)
    for part, value in zip(kl_parts(z, mu, log_var, num_train), expected, strict=True):
        close(part, value, rtol=1e-9)


@pytest.mark.parametrize("num_train", [1, 9, 5000])
def test_kl_parts_add_up_to_the_one_sample_kl(num_train: int) -> None:
    z, mu, log_var = latents()
    whole = norm.logpdf(z, mu, (log_var / 2).exp()).sum(1) - norm.logpdf(z).sum(1)
    close(sum(kl_parts(z, mu, log_var, num_train)), whole.mean(), rtol=1e-9)


def mixture_sample(mu: Tensor, sd: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    noise = torch.randn(mu.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return mu + sd * noise, mu, torch.full_like(mu, 2 * math.log(sd))


def constant(num_train: int, axes: int) -> float:
    """What the estimate adds: 1/(N M) stands for 1/M once in the joint and once in each of the axes."""
    return (axes - 1) * math.log(num_train)


@pytest.mark.parametrize("num_train", [1, 400])
def test_total_correlation_of_independent_axes_is_zero(num_train: int) -> None:
    """The means are a full grid, so that the mixture over the batch is the product of its marginals."""
    grid = torch.linspace(-3, 3, 20, dtype=torch.float64)
    mu = torch.cartesian_prod(grid, grid)
    _, correlation, _ = kl_parts(*mixture_sample(mu, 0.3), num_train)
    close(correlation, constant(num_train, 2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num_train", [1, 400])
def test_total_correlation_of_correlated_means(num_train: int) -> None:
    """Means of two normal axes of correlation rho: close to a Gaussian, whose total correlation is known."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 400))
    mu = torch.tensor(np.stack([a, 0.9 * a + math.sqrt(1 - 0.81) * b], 1))
    _, correlation, _ = kl_parts(*mixture_sample(mu, 0.3), num_train)
    rho = 0.9 / (1 + 0.3**2)
    known = -0.5 * math.log(1 - rho**2)
    assert known > 0.5
    close(correlation, known + constant(num_train, 2), rtol=0, atol=0.15)


def test_gradient_of_total_correlation_decorrelates() -> None:
    a = torch.randn(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mix = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    b = torch.randn(200, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mu = torch.stack([a, mix * a + (1 - mix.square()).sqrt() * b], 1)
    _, correlation, _ = kl_parts(*mixture_sample(mu, 0.3), 200)
    correlation.backward()
    assert mix.grad is not None
    assert mix.grad > 0.1


def test_permute_axes() -> None:
    torch.manual_seed(0)
    a = torch.randn(2000)
    z = torch.stack([a, a, -a], 1)
    shuffled = permute_axes(z)
    assert torch.equal(shuffled.sort(0).values, z.sort(0).values)
    assert (torch.corrcoef(shuffled.T) - torch.eye(3)).abs().max() < 0.1
    assert (torch.corrcoef(torch.cat([shuffled.T, z.T]))[:3, 3:]).abs().max() < 0.1
    assert not torch.equal(permute_axes(z), shuffled)


def test_every_permutation_of_an_axis_is_as_likely() -> None:
    torch.manual_seed(1)
    z = torch.arange(3.0).unsqueeze(1).expand(3, 4000)
    orders = (permute_axes(z) * torch.tensor([[9.0], [3.0], [1.0]])).sum(0).unique(return_counts=True)[1]
    assert len(orders) == 6
    assert orders.min() > 550
    assert orders.max() < 790


def test_density_ratio_is_the_log_odds() -> None:
    logits = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = logits.softmax(1)[:, 0]
    close(density_ratio(logits), (p / (1 - p)).log().mean().item(), rtol=1e-9)


def test_discrimination_is_the_cross_entropy_of_both_halves() -> None:
    random = torch.Generator().manual_seed(0)
    joint, permuted = torch.randn(2, 50, 2, generator=random, dtype=torch.float64)
    real, fake = joint.softmax(1)[:, 0], permuted.softmax(1)[:, 0]
    close(discrimination(joint, permuted), (-0.5 * real.log() - 0.5 * (1 - fake).log()).mean().item(), rtol=1e-9)
    close(discrimination(torch.zeros(8, 2), torch.zeros(8, 2)), math.log(2))


def test_a_trained_discriminator_sees_the_total_correlation() -> None:
    """Logistic regression on products of axes is the best discriminator of a Gaussian from its shuffle."""
    torch.manual_seed(0)
    a, b = torch.randn(2, 4000)
    z = torch.stack([a, 0.6 * a + 0.8 * b], 1)
    layer = nn.Linear(4, 2)

    def judge(v: Tensor) -> Tensor:
        return layer(torch.stack([v[:, 0] * v[:, 1], v[:, 0] ** 2, v[:, 1] ** 2, torch.ones(len(v))], 1))

    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        discrimination(judge(z), judge(permute_axes(z))).backward()
        optimiser.step()
    close(density_ratio(judge(z)), -0.5 * math.log(1 - 0.36), rtol=0, atol=0.05)


def factor_method(**options: object) -> SITAR:
    torch.manual_seed(0)
    model = ModelConfig(latent_dim=3, channels=(4,), hidden=8)
    config = SITARConfig.model_validate(options)
    return SITAR(config, model, Task((3, 8, 8), 2, N, (N // 2, N // 2)))


def split_of(n: int = N) -> TrainSplit:
    random = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 2
    x = torch.randint(0, 128, (n, 3, 8, 8), generator=random) + 100 * y[:, None, None, None]
    return TrainSplit(x.to(torch.uint8), y)


def batch() -> TrainBatch:
    return split_of().batch(torch.arange(N))


def test_factor_objectives_move_apart() -> None:
    method = factor_method(vae="factor")
    (phase,) = method.phases()
    assert isinstance(phase, GradientPhase)
    first, second = ({id(p) for p in objective.parameters} for objective in phase.objectives)
    discriminator = {id(p) for p in method.discriminator.parameters()}
    assert second == discriminator
    assert first == {id(p) for p in method.parameters()} - discriminator
    assert phase.objectives[1].settings["learning_rate"] == 1e-4
    phase.objectives[1].loss(batch())["loss"].backward()
    others = [p for p in method.parameters() if id(p) not in discriminator]
    assert all(p.grad is None for p in others)
    assert all(p.grad is not None for p in method.discriminator.parameters())


def test_a_step_of_the_discriminator_is_by_its_own_loss_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two optimisers of plain SGD, by hand: the first loss leaves nothing in the discriminator's gradient."""
    monkeypatch.setattr("sitar.methods.sitar.DISCRIMINATOR_RATE", 0.5)
    method = factor_method(vae="factor")
    config = TrainConfig(optimiser="sgd", momentum=0.0, learning_rate=1e-3, batch_size=N)
    twin = copy.deepcopy(method)
    (phase,) = method.phases()
    assert isinstance(phase, GradientPhase)
    own = [config.model_copy(update=dict(objective.settings)) for objective in phase.objectives]
    optimisers = [
        build_optimiser(c, objective.parameters, torch.device("cpu"))
        for c, objective in zip(own, phase.objectives, strict=True)
    ]
    step = EagerStep(
        phase.objectives, optimisers, split_of(), batch_size=N, steps=1, device=torch.device("cpu"), config=config
    )
    step.begin_epoch(torch.arange(N).view(1, N))
    torch.manual_seed(3)
    step([1e-3, 0.5])

    torch.manual_seed(3)
    main = [p for name, p in twin.named_parameters() if "discriminator" not in name]
    judge = list(twin.discriminator.parameters())
    for loss, parameters, rate in ((twin.loss, main, 1e-3), (twin.discriminator_loss, judge, 0.5)):
        gradients = torch.autograd.grad(loss(batch())["loss"], parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(rate * gradient)
    for (name, a), b in zip(method.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=name)


def test_factor_loss_is_elbo_and_density_ratio() -> None:
    method = factor_method(vae="factor", beta=6.0)
    with torch.no_grad():
        method.discriminator.layers[-1].weight.mul_(5)
    torch.manual_seed(2)
    terms = method.loss(batch())
    torch.manual_seed(2)
    mu, log_var = method.vae.encode(batch().x)
    z = mu + (log_var / 2).exp() * torch.randn(N, 3)
    p = method.discriminator(z).softmax(1)[:, 0]
    correlation = (p / (1 - p)).log().mean().item()
    kl = 0.5 * (mu**2 + log_var.exp() - 1 - log_var).sum(1).mean().item()
    close(terms["total_correlation"], correlation, rtol=1e-4)
    close(terms["divergence"], kl + 6 * correlation, rtol=1e-4)
    parts = terms["reconstruction"] + terms["divergence"] + terms["cross_entropy"]
    close(terms["loss"], (parts + method.config.lambda_ * terms["consistency"]).item())


def test_gradient_of_the_density_ratio_reaches_the_encoder() -> None:
    method = factor_method(vae="factor")
    terms = method.loss(batch())
    gradient = torch.autograd.grad(terms["total_correlation"], method.vae.mean.weight)[0]
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("beta", [1.0, 6.0])
def test_tc_weighs_the_total_correlation_alone(beta: float) -> None:
    """With beta = 1 the divergence is the one-sample KL; every further unit of beta adds one total correlation."""
    method = factor_method(vae="tc", beta=beta)
    torch.manual_seed(2)
    terms = method.loss(batch())
    torch.manual_seed(2)
    with torch.no_grad():
        mu, log_var = method.vae.encode(batch().x)
    noise = torch.randn(N, 3)
    z, sd = mu + (log_var / 2).exp() * noise, (log_var / 2).exp()
    whole = (norm.logpdf(z, mu, sd) - norm.logpdf(z)).sum(1).mean()
    correlation = parts_by_hand(*(t.double().numpy() for t in (z, mu, log_var)), N)[1]
    close(terms["total_correlation"], correlation, rtol=1e-4)
    close(terms["divergence"], whole + (beta - 1) * correlation, rtol=1e-4)


def test_beta_is_what_the_state_says_with_tc_and_factor() -> None:
    for kind in ("tc", "factor"):
        method = factor_method(vae=kind, beta=4.0)
        method.beta.fill_(2.0)
        torch.manual_seed(0)
        terms = method.loss(batch())
        rest = terms["kl"] if kind == "factor" else terms["information"] + terms["axis_kl"]
        close(terms["divergence"], (rest + 2 * terms["total_correlation"]).item())


def test_discriminator_loss_is_of_latents_and_their_shuffle() -> None:
    method = factor_method(vae="factor")
    torch.manual_seed(5)
    loss = method.discriminator_loss(batch())["loss"]
    torch.manual_seed(5)
    with torch.no_grad():
        mu, log_var = method.vae.encode(batch().x)
        z = mu + (log_var / 2).exp() * torch.randn(N, 3)
        shuffled = permute_axes(z)
        real = F.cross_entropy(method.discriminator(z), torch.zeros(N, dtype=torch.long))
        fake = F.cross_entropy(method.discriminator(shuffled), torch.ones(N, dtype=torch.long))
    close(loss, ((real + fake) / 2).item())
