"""Losses and state of the baselines against plain references, written from the papers and docs/protocol.md."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import authors
from helpers.referees import close
from sitar.config import ModelConfig
from sitar.data import GroupBatch, GroupSplit, GroupTask, Task, TrainBatch, TrainSplit
from sitar.methods import FitPhase, GradientPhase, Method
from sitar.methods.afr import hardness
from sitar.methods.dfr import DFR, DFRConfig, balanced_subset
from sitar.registry import METHODS

MODEL = ModelConfig(latent_dim=5, channels=(4,), hidden=8)
SHAPE = (3, 8, 8)


def images(n: int, seed: int = 0) -> Tensor:
    """Noise of different brightness, so that an untrained network tells them apart."""
    random = torch.Generator().manual_seed(seed)
    return torch.rand(n, *SHAPE, generator=random) * torch.rand(n, 3, 1, 1, generator=random)


def build(name: str, y: Tensor, groups: dict[str, Tensor] | None = None, seed: int = 0, **options: Any) -> Method:
    """A tiny method for training labels `y`, of which the last class need not be the largest label."""
    torch.manual_seed(seed)
    counts = torch.bincount(y)
    task = Task(SHAPE, len(counts), len(y), tuple(counts.tolist()))
    if groups is not None:
        task = GroupTask(**vars(task), **groups)
    cls = METHODS.get(name)
    return cls(cls.Config.model_validate(options), MODEL, task)


LFF_Y = torch.tensor([0] * 7 + [1] * 4 + [2])
LFF_STEPS = ([0, 1, 2, 7, 8, 11], [1, 3, 4, 8, 9, 11], [0, 2, 3, 5, 7, 10], [1, 2, 6, 8, 11, 9])


def test_lff_remembers_in_its_state() -> None:
    method = build("lff", LFF_Y)
    at = torch.tensor(LFF_STEPS[0])
    batch = TrainBatch(images(12)[at], LFF_Y[at], at)
    method.loss(batch)
    with torch.no_grad():  # else the second loss of a sample is its first, and so is their mean
        for network in (method.biased, method.debiased):
            network.last_layer.weight.mul_(-4)
    twin = build("lff", LFF_Y, seed=9)
    twin.load_state_dict(copy.deepcopy(method.state_dict()))
    later = torch.tensor(LFF_STEPS[1])
    batch = TrainBatch(images(12)[later], LFF_Y[later], later)
    assert method.loss(batch)["loss"] == twin.loss(batch)["loss"]


@pytest.mark.parametrize("copies", [1, 20])
def test_jtt_weighs_an_error_once_more_than_its_copies(copies: int) -> None:
    y = torch.arange(9) % 2
    method = build("jtt", y, copies=copies, first_epochs=3)
    phases = method.phases()
    first = next(phases)
    assert isinstance(first, GradientPhase)
    assert first.epochs == 3
    assert first.indices is None
    assert not first.select
    wrong = torch.tensor([0, 1, 0, 0, 1, 1, 0, 0, 0], dtype=torch.bool)
    method.wrong.copy_(wrong)
    second = next(phases)
    assert isinstance(second, GradientPhase)
    assert second.indices is not None
    assert torch.bincount(second.indices, minlength=9).tolist() == [copies + 1 if w else 1 for w in wrong]
    assert second.facts["error_set"] == 3
    assert next(phases, None) is None


def test_jtt_stages_share_no_weights() -> None:
    """The second stage starts from scratch and the first stays as it was."""
    y = torch.arange(8) % 2
    method = build("jtt", y)
    phases = method.phases()
    moved = [{id(p) for objective in phase.objectives for p in objective.parameters} for phase in phases]
    assert not moved[0] & moved[1]
    assert moved[0] == {id(p) for p in method.first.parameters()}
    batch = TrainBatch(images(8), y, torch.arange(8))
    close(method.second_loss(batch)["loss"], F.cross_entropy(method.logits(batch.x), y).item())


def test_jtt_marks_by_the_last_visit() -> None:
    """Marks of the samples of a batch are overwritten, those of others kept."""
    y = torch.tensor([0, 1, 0, 1, 0, 1])
    method = build("jtt", y)
    x = images(6)
    for sign, index in ((1, [0, 1, 2, 3]), (-1, [2, 3, 5])):
        with torch.no_grad():
            method.first.last_layer.weight.zero_()
            method.first.last_layer.bias.copy_(torch.tensor([sign, -sign]))
        at = torch.tensor(index)
        method.first_loss(TrainBatch(x[at], y[at], at))
    assert method.wrong.tolist() == [False, True, True, False, False, False]


ENVIRONMENT = torch.tensor([0, 0, 1, 1, 1, 3, 3, 0, 1, 3, 3, 3])  # environment 2 is not in the data


def invariance_by_hand(name: str, logits: Tensor, y: Tensor, environment: Tensor) -> tuple[Tensor, Tensor]:
    rule = {"irm": authors.IRM, "vrex": authors.VREx}[name](nn.Identity(), 1.0, 0)
    parts = [(logits[environment == e], y[environment == e].tolist()) for e in environment.unique()]
    return rule.risk(parts), rule.differ(parts)


@pytest.mark.parametrize("name", ["irm", "vrex"])
@pytest.mark.parametrize(
    ("penalty", "epoch", "weight", "divisor"),
    [
        (200.0, 0, 1, 1),
        (200.0, 2, 1, 1),
        (200.0, 3, 200, 200),
        (200.0, 9, 200, 200),
        (0.25, 0, 0.25, 1),
        (0.25, 3, 0.25, 1),
        (0.0, 5, 0, 1),
    ],
)
@pytest.mark.parametrize("all_there", [True, False])
def test_penalties_of_invariance_and_their_annealing(
    name: str, penalty: float, epoch: int, weight: float, divisor: float, all_there: bool
) -> None:
    y = torch.tensor([0, 1, 2, 0, 1, 1, 2, 1, 0, 0, 2, 1])
    groups = {"group": ENVIRONMENT, "environment": ENVIRONMENT}
    method = build(name, y, groups, penalty=penalty, penalty_from_epoch=3)
    with torch.no_grad():
        method.network.last_layer.weight.mul_(6)
    method.begin_epoch(epoch)
    at = torch.arange(12) if all_there else (ENVIRONMENT != 1).nonzero().squeeze(1)
    x = images(12)[at] * 3
    terms = method.loss(GroupBatch(x, y[at], at, ENVIRONMENT[at], ENVIRONMENT[at]))

    risk, size = invariance_by_hand(name, method.network(x), y[at], ENVIRONMENT[at])
    loss = (risk + weight * size) / divisor
    assert size > 1e-4
    close(terms["cross_entropy"], risk.item())
    close(terms["penalty"], size.item(), rtol=1e-3)
    close(terms["loss"], loss.item(), rtol=1e-3)
    parameters = list(method.parameters())
    pairs = (torch.autograd.grad(term, parameters, retain_graph=True) for term in (terms["loss"], loss))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * float(b.abs().max()))


def test_hardness_of_afr() -> None:
    """mu_i = exp(-gamma p_i) / n_class(i), scaled to sum 1; a class may be missing."""
    random = np.random.default_rng(0)
    logits, y = 2 * random.normal(size=(30, 4)), random.choice([0, 1, 3], 30, p=[0.7, 0.2, 0.1])
    for gamma in (0.0, 4.0, 20.0):
        p = softmax(logits, 1)[np.arange(30), y]
        expected = np.exp(-gamma * p) / np.array([np.sum(y == label) for label in y])
        actual = hardness(torch.tensor(logits), torch.tensor(y), gamma)
        close(actual, expected / expected.sum(), rtol=1e-9, atol=1e-12)
        close(actual.sum(), 1.0)
    balanced = hardness(torch.tensor(logits), torch.tensor(y), 0.0).numpy()
    close(np.array([balanced[y == label].sum() for label in (0, 1, 3)]), [1 / 3] * 3)


def test_the_steps_of_afr_lead_to_what_it_solves_for() -> None:
    y = torch.arange(40) % 3
    split = TrainSplit((images(40) * 120 + 40 * y[:, None, None, None]).to(torch.uint8), y)
    options = {"held_out": 0.5, "gamma": 3.0, "l2": 0.05}
    solved, stepwise = build("afr", y, **options).eval(), build("afr", y, **options, last_epochs=1).eval()
    list(solved.phases())[1].fit(split)
    _, weigh, steps = stepwise.phases()
    weigh.fit(split)
    (objective,) = steps.objectives
    whole = split.batch(steps.indices)
    close(stepwise.hard[steps.indices].mean().item(), 1.0, rtol=1e-5)
    optimiser = torch.optim.LBFGS(
        objective.parameters, max_iter=300, tolerance_grad=1e-8, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = objective.loss(whole)["loss"]
        loss.backward()
        return loss

    optimiser.step(closure)
    for mine, exact in zip(stepwise.parameters(), solved.parameters(), strict=True):
        close(mine.detach(), exact.detach(), rtol=1e-2, atol=1e-3)
    assert all(parameter.grad is None for parameter in stepwise.network.encoder.parameters())


def test_the_last_layer_of_afr_takes_epochs_or_steps() -> None:
    with pytest.raises(ValueError, match="epochs or steps, not both"):
        build("afr", torch.arange(8) % 2, last_epochs=2, last_steps=5)


def test_afr_solves_for_the_last_layer_on_what_was_held_out() -> None:
    """sum_i mu_i CE_i + lambda |theta - theta_0|^2, solved by scipy on the held-out features."""
    y = torch.arange(40) % 3
    split = TrainSplit((images(40) * 120 + 40 * y[:, None, None, None]).to(torch.uint8), y)
    method = build("afr", y, held_out=0.5, gamma=3.0, l2=0.05).eval()
    first, fit = method.phases()
    assert isinstance(first, GradientPhase)
    assert isinstance(fit, FitPhase)
    assert first.indices is not None
    held_out = sorted(set(range(40)) - set(first.indices.tolist()))
    assert len(held_out) == 20
    with torch.no_grad():
        features = method.network.features(split.batch(torch.tensor(held_out)).x).double().numpy()
    last = method.network.last_layer
    start = np.concatenate([last.weight.detach().double().numpy().ravel(), last.bias.detach().double().numpy()])
    labels = y[held_out].numpy()

    def log_probability(theta: np.ndarray) -> np.ndarray:
        logits = features @ theta[:-3].reshape(3, -1).T + theta[-3:]
        return log_softmax(logits, 1)[np.arange(20), labels]

    mu = np.exp(-3.0 * np.exp(log_probability(start))) / np.bincount(labels)[labels]
    mu /= mu.sum()
    best = minimize(
        lambda theta: -mu @ log_probability(theta) + 0.05 * np.square(theta - start).sum(), start, tol=1e-10
    ).x
    others = [p for p in method.parameters() if all(p is not own for own in last.parameters())]
    before = [p.clone() for p in others]
    fit.fit(split)
    theta = np.concatenate([last.weight.detach().numpy().ravel(), last.bias.detach().numpy()])
    assert np.abs(best - start).max() > 0.02
    close(theta, best, rtol=1e-3, atol=1e-4)
    assert len(others) == len(list(method.parameters())) - 2
    assert all(torch.equal(a, b) for a, b in zip(before, others, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_dfr_holds_out_some_of_every_group(seed: int) -> None:
    """Also of groups that a random draw of a fifth would mostly miss; what it draws of the others stays random."""
    group = torch.tensor([0] * 198 + [1] * 2 + [2] * 2 + [3] * 198)
    split = GroupSplit(torch.zeros(400, 3, 8, 8, dtype=torch.uint8), group // 2, group, group % 2)
    torch.manual_seed(seed)
    held_out = DFR(DFRConfig(), MODEL, split.task(2)).held_out
    assert set(group[held_out].tolist()) == {0, 1, 2, 3}
    assert 80 <= held_out.sum() <= 82


def test_balanced_subset() -> None:
    random = np.random.default_rng(0)
    group = random.permutation(np.repeat([0, 1, 3, 7], [40, 5, 12, 9]))
    seen = []
    for _ in range(20):
        chosen = balanced_subset(group, random)
        assert len(set(chosen.tolist())) == len(chosen) == 20
        assert np.bincount(group[chosen], minlength=8).tolist() == [5, 5, 0, 5, 0, 0, 0, 5]
        seen.append(frozenset(chosen.tolist()))
    assert len(set(seen)) == 20
    assert len(frozenset.union(*seen)) > 50  # subsets differ, so that together they use most of the large groups


class TwoFeatures(nn.Module):
    """A network whose features are the first two pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.last_layer = nn.Linear(2, 2)

    def features(self, x: Tensor) -> Tensor:
        return x[:, 0, 0, :2]

    def forward(self, x: Tensor) -> Tensor:
        return self.last_layer(self.features(x))


def test_dfr_ignores_what_is_spurious() -> None:
    """A larger feature that agrees with the label in 95 of 100 samples; plain logistic regression leans on it."""
    random = np.random.default_rng(1)
    y = random.integers(0, 2, 800)
    attribute = np.where(random.random(800) < 0.95, y, 1 - y)
    features = np.stack([2 * y - 1 + 0.45 * random.normal(size=800), 3 * (2 * attribute - 1)], 1)
    features += [7, 20]
    features[:, 1] += 0.3 * random.normal(size=800)
    x = torch.zeros(800, *SHAPE)
    x[:, 0, 0, :2] = torch.tensor(features, dtype=torch.float32)
    group = torch.tensor(2 * y + attribute)
    split = GroupSplit(x, torch.tensor(y), group, group % 2)
    torch.manual_seed(0)
    method = DFR(DFRConfig(held_out=0.5), MODEL, split.task(2))
    method.network = TwoFeatures()
    first, fit = method.phases()
    assert isinstance(first, GradientPhase)
    assert isinstance(fit, FitPhase)
    assert first.indices is not None
    held_out = np.setdiff1d(np.arange(800), first.indices.numpy())
    assert len(held_out) == 400
    torch.manual_seed(1)
    fit.fit(split)

    weight = method.network.last_layer.weight.detach().double().numpy()
    core, spurious = (weight[1] - weight[0]) * features[held_out].std(0)
    control = LogisticRegression().fit(features[held_out], y[held_out]).coef_[0] * features[held_out].std(0)
    assert core > 1
    assert abs(spurious) < 0.25 * core
    assert abs(control[1]) > 0.4 * control[0]
    right = method.logits(x).argmax(1) == split.y
    minority = torch.tensor(attribute != y)
    assert right[minority].float().mean() > 0.9
    assert right[~minority].float().mean() > 0.9


@pytest.mark.parametrize("classes", [2, 3])
def test_chroma_vae_votes_on_the_means_of_z2(classes: int) -> None:
    y = torch.arange(60) % classes
    split = TrainSplit((images(60) * 200).to(torch.uint8), y)
    method = build("chroma_vae", y, shortcut_dim=2, neighbours=5).eval()
    joint, fit = method.phases()
    assert isinstance(joint, GradientPhase)
    assert isinstance(fit, FitPhase)
    fit.fit(split)
    x = images(300, seed=7)
    with torch.no_grad():
        means = [method.vae.encode(v)[0][:, 2:].numpy() for v in (split.batch(torch.arange(60)).x, x)]
        logits = method.logits(x)
    votes = 5 * KNeighborsClassifier(5).fit(means[0], y.numpy()).predict_proba(means[1])
    clear = np.sort(votes, 1)[:, -1] > np.sort(votes, 1)[:, -2]
    assert clear.sum() > 100
    assert (logits.argmax(1).numpy() == votes.argmax(1))[clear].all()
    order = np.sign(votes[:, :, None] - votes[:, None, :])
    assert (torch.sign(logits[:, :, None] - logits[:, None, :]).numpy() == order).all()


def test_balanced_votes_of_chroma_vae_are_divided_by_the_size_of_the_class() -> None:
    """The logits are log-probabilities, and without weights the votes stay counts."""
    y = torch.tensor([0] * 45 + [1] * 15)
    split = TrainSplit((images(60) * 200).to(torch.uint8), y)
    x = images(100, seed=7)
    found = {}
    for weight in (None, "balanced"):
        method = build("chroma_vae", y, shortcut_dim=2, neighbours=9, class_weight=weight).eval()
        list(method.phases())[1].fit(split)
        with torch.no_grad():
            means = [method.vae.encode(v)[0][:, 2:].numpy() for v in (split.batch(torch.arange(60)).x, x)]
            found[weight] = method.logits(x)
        close(found[weight].exp().sum(1), np.ones(100))
    votes = 9 * KNeighborsClassifier(9).fit(means[0], y.numpy()).predict_proba(means[1])
    close(found[None], np.log((votes + 1) / 11))
    shares = votes / [45, 15]
    clear = np.abs(shares[:, 0] - shares[:, 1]) > 1e-6
    assert (found["balanced"].argmax(1).numpy() == shares.argmax(1))[clear].all()
    assert (found["balanced"].argmax(1) != found[None].argmax(1)).sum() > 20


def test_chroma_vae_loss() -> None:
    """-ELBO + weight * cross-entropy of a classifier that reads samples of z1 alone."""
    y = torch.arange(20) % 2
    method = build("chroma_vae", y, shortcut_dim=2, neighbours=3, beta=0.7, weight=30.0)
    x = images(20)
    torch.manual_seed(4)
    terms = method.loss(TrainBatch(x, y, torch.arange(20)))
    torch.manual_seed(4)
    mu, log_var = method.vae.encode(x)
    z = mu + (log_var / 2).exp() * torch.randn(20, 5)
    error = (method.vae.decode(z) - x).square().sum((1, 2, 3)).mean()
    kl = 0.5 * (mu**2 + log_var.exp() - 1 - log_var).sum(1).mean()
    fit = F.cross_entropy(method.shortcut(z[:, :2]), y)
    close(terms["cross_entropy"], fit.item())
    close(terms["loss"], (error + 0.7 * kl + 30 * fit).item())
    (phase, *_) = method.phases()
    assert phase.logits is not None
    close(phase.logits(x), method.shortcut(mu[:, :2]).detach().numpy())
    with torch.no_grad():  # what is in z2 does not reach the classifier of z1
        method.vae.mean.weight[2:].add_(1.0)
    close(phase.logits(x), method.shortcut(mu[:, :2]).detach().numpy())


@pytest.mark.parametrize("head", ["logistic", "mlp"])
def test_a_head_on_z2_leaves_the_vae_alone(head: str) -> None:
    y = torch.arange(20) % 2
    method = build("chroma_vae", y, shortcut_dim=2, head=head, head_epochs=4)
    joint, second = method.phases()
    x = images(20)
    assert isinstance(joint, GradientPhase)
    assert isinstance(second, GradientPhase)
    assert second.epochs == 4
    (objective,) = second.objectives
    assert {id(p) for p in objective.parameters} == {id(p) for p in method.head.parameters()}
    assert not {id(p) for p in joint.objectives[0].parameters} & {id(p) for p in objective.parameters}
    terms = objective.loss(TrainBatch(x, y, torch.arange(20)))
    close(terms["loss"], F.cross_entropy(method.head(method.vae.encode(x)[0][:, 2:]), y).item())
    terms["loss"].backward()
    assert all(p.grad is None for p in [*method.vae.parameters(), *method.shortcut.parameters()])
    assert all(p.grad is not None for p in method.head.parameters())
    close(method.logits(x), method.head(method.vae.encode(x)[0][:, 2:]).detach().numpy())
