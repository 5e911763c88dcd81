"""Losses and state of the baselines against plain references, written from the papers and docs/protocol.md."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
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


def objective_step(method: Method, phase: GradientPhase, optimiser: torch.optim.Optimizer, batch: Any) -> dict:
    (objective,) = phase.objectives
    optimiser.zero_grad()
    terms = objective.loss(batch)
    terms["loss"].backward()
    optimiser.step()
    return {name: value.detach() for name, value in terms.items()}


def assert_same_parameters(ours: nn.Module, reference: nn.Module, start: nn.Module) -> None:
    """Equal, and moved from where both started: the comparison is of the step, not of the weights."""
    for (name, a), b, before in zip(ours.named_parameters(), reference.parameters(), start.parameters(), strict=True):
        step, expected = (a - before).detach(), (b - before).detach()
        assert expected.abs().max() > 0, name
        torch.testing.assert_close(step, expected, rtol=1e-3, atol=2e-3 * float(expected.abs().max()), msg=name)


class LfFByHand:
    """What docs/protocol.md says of LfF, one sample at a time, on networks of its own."""

    def __init__(self, biased: nn.Module, debiased: nn.Module, y: Tensor, q: float, decay: float) -> None:
        self.biased, self.debiased = copy.deepcopy(biased), copy.deepcopy(debiased)
        self.y, self.q, self.decay = y.tolist(), q, decay
        self.tables: tuple[dict[int, float], dict[int, float]] = ({}, {})
        self.parameters = [*self.biased.parameters(), *self.debiased.parameters()]
        self.outside = 0  # how often the largest loss of a class was that of a sample outside the batch

    def losses(self, network: nn.Module, x: Tensor, index: list[int]) -> list[Tensor]:
        scores = network(x).log_softmax(1)
        return [-scores[row, self.y[i]] for row, i in enumerate(index)]

    def step(self, x: Tensor, index: list[int], optimiser: torch.optim.Optimizer) -> list[float]:
        both = [self.losses(network, x, index) for network in (self.biased, self.debiased)]
        relative: list[list[float]] = []
        for table, losses in zip(self.tables, both, strict=True):
            for i, loss in zip(index, losses, strict=True):
                new = float(loss.detach())
                table[i] = self.decay * table[i] + (1 - self.decay) * new if i in table else new
            row = []
            for i in index:
                of_class = {j: table[j] for j in table if self.y[j] == self.y[i]}
                largest = max(of_class, key=lambda j: of_class[j])
                self.outside += largest not in index
                row.append(table[i] / table[largest])
            relative.append(row)
        weights = [b / (b + d + 1e-8) for b, d in zip(*relative, strict=True)]
        total = torch.zeros(())
        for loss_b, loss_d, weight in zip(*both, weights, strict=True):
            p = float(torch.exp(-loss_b.detach()))
            total = total + self.q * p**self.q * loss_b + weight * loss_d
        optimiser.zero_grad()
        (total / len(index)).backward()
        optimiser.step()
        return weights


LFF_Y = torch.tensor([0] * 7 + [1] * 4 + [2])
LFF_STEPS = ([0, 1, 2, 7, 8, 11], [1, 3, 4, 8, 9, 11], [0, 2, 3, 5, 7, 10], [1, 2, 6, 8, 11, 9])
OPTIMISERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.5),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("settings", [{}, {"q": 0.4, "decay": 0.9}], ids=["defaults", "others"])
def test_lff_is_a_plain_loop(optimiser: str, settings: dict[str, float]) -> None:
    """Samples come again, classes are unbalanced, and the hardest of a class is not always in the batch."""
    x = 6 * images(len(LFF_Y))
    method = build("lff", LFF_Y, seed=3, **settings)
    with torch.no_grad():  # networks that disagree, so that weights are not all near one half
        method.biased.mean.weight.mul_(3)
        method.biased.last_layer.weight.mul_(3)
    reference = LfFByHand(method.biased, method.debiased, LFF_Y, settings.get("q", 0.7), settings.get("decay", 0.7))
    start = copy.deepcopy(method)
    (phase,) = method.phases()
    ours = OPTIMISERS[optimiser](phase.objectives[0].parameters)
    theirs = OPTIMISERS[optimiser](reference.parameters)
    for index in LFF_STEPS:
        at = torch.tensor(index)
        terms = objective_step(method, phase, ours, TrainBatch(x[at], LFF_Y[at], at))
        weights = reference.step(x[at], index, theirs)
        assert max(weights) - min(weights) > 0.05
        close(terms["difficulty"], np.mean(weights), rtol=1e-4)
        for table, expected in zip((method.biased_losses, method.debiased_losses), reference.tables, strict=True):
            seen = sorted(expected)
            close(table[seen], [expected[i] for i in seen], rtol=2e-4)
        assert_same_parameters(method.biased, reference.biased, start.biased)
        assert_same_parameters(method.debiased, reference.debiased, start.debiased)
    assert reference.outside > 3


def test_lff_weights_are_those_of_the_gradient() -> None:
    """The gradient by the debiased logits is weight * (p - onehot) / n: weights are read from it, sample by sample."""
    method = build("lff", LFF_Y, seed=5)
    reference = LfFByHand(method.biased, method.debiased, LFF_Y, 0.7, 0.7)
    still = torch.optim.SGD(reference.parameters, lr=0.0)
    x = images(len(LFF_Y), seed=2)
    captured: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        captured.append(output)

    method.debiased.last_layer.register_forward_hook(keep)
    for index in LFF_STEPS:
        at = torch.tensor(index)
        captured.clear()
        method.loss(TrainBatch(x[at], LFF_Y[at], at))["loss"].backward()
        (logits,) = captured
        direction = (logits.softmax(1) - F.one_hot(LFF_Y[at], 3)).detach() / len(at)
        assert logits.grad is not None
        weights = (logits.grad * direction).sum(1) / direction.square().sum(1)
        close(weights, reference.step(x[at], index, still), rtol=1e-3)


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


DRO_GROUP = torch.tensor([0, 0, 0, 0, 0, 2, 2, 3, 3, 3])  # no sample of group 1
DRO_STEPS = ([0, 1, 5, 6, 7, 8], [0, 2, 3, 8, 9], [4, 5, 9, 1], [5, 6, 6])


@pytest.mark.parametrize("adjustment", [0.0, 1.5])
def test_group_dro_is_a_plain_loop(adjustment: float) -> None:
    """q_g <- q_g exp(eta (loss_g + C / sqrt(n_g))) of the groups in the batch, normalised, then q . loss."""
    y = DRO_GROUP // 2
    method = build(
        "group_dro", y, {"group": DRO_GROUP, "environment": DRO_GROUP % 2}, step_size=0.3, adjustment=adjustment
    )
    start, reference = copy.deepcopy(method), copy.deepcopy(method.network)
    (phase,) = method.phases()
    ours, theirs = OPTIMISERS["sgd"](phase.objectives[0].parameters), OPTIMISERS["sgd"](reference.parameters())
    x = images(10)
    sizes = {0: 5, 2: 2, 3: 3}
    q = dict.fromkeys(sizes, 1 / 3)
    for index in DRO_STEPS:
        at = torch.tensor(index)
        terms = objective_step(method, phase, ours, GroupBatch(x[at], y[at], at, DRO_GROUP[at], DRO_GROUP[at] % 2))
        losses = F.cross_entropy(reference(x[at]), y[at], reduction="none")
        risk = {g: losses[DRO_GROUP[at] == g].mean() for g in set(DRO_GROUP[at].tolist())}
        for g, value in risk.items():
            q[g] *= np.exp(0.3 * (value.item() + adjustment / np.sqrt(sizes[g])))
        q = {g: value / sum(q.values()) for g, value in q.items()}
        loss = sum((q[g] * risk[g] for g in risk), start=torch.zeros(()))
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        close(method.mixture, [q[0], 0, q[2], q[3]], rtol=1e-4)
        close(terms["mixture"], [q[0], 0, q[2], q[3]], rtol=1e-4)
        close(terms["loss"], loss.item(), rtol=1e-4)
        assert_same_parameters(method.network, reference, start.network)
    assert max(q.values()) - min(q.values()) > 0.05


ENVIRONMENT = torch.tensor([0, 0, 1, 1, 1, 3, 3, 0, 1, 3, 3, 3])  # environment 2 is not in the data


def dummy_scale_penalty(logits: Tensor, y: Tensor) -> Tensor:
    """IRMv1 as its authors compute it: a scale that multiplies the logits, and autograd."""
    scale = torch.ones((), requires_grad=True)
    (slope,) = torch.autograd.grad(F.cross_entropy(logits * scale, y), scale, create_graph=True)
    return slope.square()


def invariance_by_hand(name: str, logits: Tensor, y: Tensor, environment: Tensor) -> tuple[Tensor, Tensor]:
    rows = [environment == e for e in environment.unique()]
    risks = torch.stack([F.cross_entropy(logits[row], y[row]) for row in rows])
    if name == "vrex":
        return risks.mean(), risks.var(unbiased=False)
    return risks.mean(), torch.stack([dummy_scale_penalty(logits[row], y[row]) for row in rows]).mean()


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


@pytest.mark.parametrize(("share", "taken"), [(1.0, 8), (0.5, 4), (0.01, 0.08), (0.3, 2.4)])
def test_cvar_method_takes_the_worst_of_the_batch(share: float, taken: float) -> None:
    y = torch.arange(8) % 2
    method = build("cvar_dro", y, share=share)
    x = images(8)
    losses = np.sort(F.cross_entropy(method.network(x), y, reduction="none").detach().double().numpy())[::-1]
    whole = int(taken)
    expected = (losses[:whole].sum() + (taken - whole) * losses[min(whole, 7)]) / taken
    close(method.loss(TrainBatch(x, y, torch.arange(8)))["loss"], expected, rtol=1e-5)


def test_jacobian_method() -> None:
    """Cross-entropy + lambda/2 |J|^2 (their Eq. 4), the norm with a tolerance for its random projections."""
    y = torch.arange(6) % 3
    method = build("jacobian", y, projections=400, **{"lambda": 50.0})
    x = images(6)
    full = torch.autograd.functional.jacobian(lambda v: method.network(v).sum(0), x)
    norm = full.square().sum().item() / 6
    torch.manual_seed(0)
    terms = method.loss(TrainBatch(x, y, torch.arange(6)))
    fit = F.cross_entropy(method.network(x), y).item()
    close(terms["jacobian"], norm, rtol=0.08)
    close(terms["loss"], fit + 25 * norm, rtol=0.08)
    close(terms["loss"], fit + 25 * terms["jacobian"].item())


def test_curvature_method() -> None:
    """Cross-entropy + gamma |grad(x + h z) - grad(x)|^2, z the unit vector along the sign of grad, sample by sample."""
    y = torch.arange(6) % 3
    method = build("curvature", y, gamma=7.0, step=1.2)
    with torch.no_grad():
        method.network.last_layer.weight.mul_(10)
    x = images(6)

    def gradient(point: Tensor, label: Tensor) -> Tensor:
        point = point.clone().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(method.network(point[None]), label[None]), point)[0]

    bends = []
    for point, label in zip(x, y, strict=True):
        here = gradient(point, label)
        step = 1.2 * here.sign() / here.sign().norm()
        bends.append((gradient(point + step, label) - here).square().sum().item())
    terms = method.loss(TrainBatch(x, y, torch.arange(6)))
    assert np.mean(bends) > 1e-6
    close(terms["curvature"], np.mean(bends), rtol=1e-3, atol=1e-9)
    close(terms["loss"], F.cross_entropy(method.network(x), y).item() + 7 * np.mean(bends), rtol=1e-5)
