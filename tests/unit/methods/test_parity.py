"""Each baseline takes the same steps as its authors' rule, written as plain loops (helpers/authors.py).

Both start from the same weights, see the same batches and draw the same noise, in float64. Wrong rules are refused.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import sitar.methods.ace
import sitar.methods.afr
import sitar.methods.curvature
import sitar.methods.cvar_dro
import sitar.methods.dbat
import sitar.methods.dfr
import sitar.methods.divdis
import sitar.methods.irm
import sitar.methods.jacobian
import sitar.methods.sitar
import sitar.methods.vrex
from helpers import authors
from helpers.referees import close
from sitar.data import GroupBatch, GroupSplit, TrainBatch, TrainSplit, UnlabelledBatch
from sitar.functional import disagreement, disentangle, last_layer, losses, risk, smoothness
from sitar.methods import GradientPhase, Method
from sitar.methods.ace import ACE
from sitar.methods.afr import AFR
from sitar.methods.dfr import balanced_subset
from sitar.methods.group_dro import GroupDRO
from sitar.methods.invariant import InvariantMethod
from sitar.methods.jtt import JTT
from sitar.methods.lff import LfF

from .test_baselines import build, images

Reference = Callable[[Any], Tensor]
Y = torch.tensor([0, 1, 2, 0, 1, 1, 2, 1, 0, 0, 2, 1])
STEPS = ([0, 1, 2, 7, 8, 11], [1, 3, 4, 8, 9, 11], [0, 2, 3, 5, 7, 10], [1, 2, 6, 8, 11, 9])


def pair(name: str, y: Tensor, *args: Any, **options: Any) -> tuple[Any, Any]:
    """A method in float64 whose networks do more than an untrained one, and its twin for the reference."""
    method = build(name, y, *args, **options).double()
    with torch.no_grad():
        for module in method.modules():
            if hasattr(module, "last_layer"):
                module.last_layer.weight.mul_(6)
    return method, copy.deepcopy(method)


def batches(y: Tensor, **groups: Tensor) -> list[Any]:
    """The samples of `STEPS`, with their groups if there are any."""
    x = 3 * images(len(y)).double()
    found = []
    for step in STEPS:
        at = torch.tensor(step)
        batch = TrainBatch(x[at], y[at], at)
        found.append(GroupBatch(**vars(batch), **{k: v[at] for k, v in groups.items()}) if groups else batch)
    return found


def descend(loss: Tensor, optimiser: torch.optim.Optimizer) -> float:
    """A step by the gradient of this loss alone."""
    (group,) = optimiser.param_groups
    for parameter, slope in zip(group["params"], torch.autograd.grad(loss, group["params"]), strict=True):
        parameter.grad = slope
    optimiser.step()
    return loss.item()


def side_by_side(
    method: Method, twin: Method, phase: GradientPhase, references: Sequence[Reference], steps: Sequence[Any],
    *, rate: float = 0.02, rtol: float = 1e-8,
) -> None:  # fmt: skip
    """Take one step by each of our losses and one by its reference, batch after batch, each batch an epoch."""
    names = {parameter: name for name, parameter in method.named_parameters()}
    own = [objective.parameters for objective in phase.objectives]
    theirs = [[twin.get_parameter(names[parameter]) for parameter in parameters] for parameters in own]
    start = {parameter: parameter.detach().clone() for parameter in itertools.chain(*own)}
    both = [[torch.optim.SGD(part, lr=rate, momentum=0.9) for part in parts] for parts in (own, theirs)]
    for number, batch in enumerate(steps):
        method.begin_epoch(number)
        for k, (objective, reference) in enumerate(zip(phase.objectives, references, strict=True)):
            torch.manual_seed(number)
            ours = descend(objective.loss(batch)["loss"], both[0][k])
            torch.manual_seed(number)
            close(ours, descend(reference(batch), both[1][k]), rtol=rtol, atol=1e-10)
        for parameter, expected in zip(itertools.chain(*own), itertools.chain(*theirs), strict=True):
            way = expected.detach() - start[parameter]
            assert way.abs().max() > 1e-7, "a comparison of weights that did not move says nothing"
            close(parameter.detach() - start[parameter], way.numpy(), rtol=0, atol=rtol * way.abs().max().item())


LFF_Y = torch.tensor([0] * 7 + [1] * 4 + [2])


def check_lff(**settings: float) -> None:
    """Samples come again, classes are unbalanced, and the hardest of a class is not always in the batch."""
    method, twin = pair("lff", LFF_Y, seed=3, **settings)
    reference = authors.LfF(twin.biased, twin.debiased, LFF_Y, settings.get("q", 0.7), settings.get("decay", 0.7))
    (phase,) = method.phases()
    side_by_side(method, twin, phase, [lambda b: reference(b.x, b.index.tolist())], batches(LFF_Y))
    for table, expected in zip((method.biased_losses, method.debiased_losses), reference.tables, strict=True):
        close(table[sorted(expected)], [expected[i] for i in sorted(expected)], rtol=1e-8, atol=1e-10)
    assert reference.outside > 3
    assert max(reference.weights) - min(reference.weights) > 0.05


def check_jtt() -> None:
    """Samples come again, and their last visit marks them. The second model then sees a longer training set."""
    y = Y % 2
    method, twin = pair("jtt", y, first_epochs=3, copies=4)
    everything = batches(y)
    reference = authors.JTT(copies=4)
    phases = method.phases()
    first = next(phases)
    assert first.epochs == 3
    seen: list[frozenset[int]] = []

    def theirs(batch: TrainBatch) -> Tensor:
        loss = reference.first(twin.first, batch.x, batch.y.tolist(), batch.index.tolist())
        seen.append(frozenset(i for i, wrong in reference.wrong.items() if wrong))
        return loss

    side_by_side(method, twin, first, [theirs], 3 * everything[:3] + everything[3:], rate=0.05)
    assert len(reference.wrong) == len(y)
    assert len(set(seen)) > 2
    assert frozenset.union(*seen) != seen[-1]
    second = next(phases)
    samples = reference.second_samples()
    assert len(y) < len(samples) < 5 * len(y)
    assert sorted(second.indices.tolist()) == sorted(samples)
    x = 3 * images(len(y)).double()
    orders = [torch.tensor(samples[k::3]) for k in range(3)]
    side_by_side(
        method, twin, second,
        [lambda b: authors.mean(authors.losses_of(twin.second(b.x), b.y.tolist()))],
        [TrainBatch(x[at], y[at], at) for at in orders],
    )  # fmt: skip


DRO_GROUP = torch.tensor([0, 0, 0, 0, 0, 2, 2, 3, 3, 3, 3, 3])  # no sample of group 1


def check_group_dro(adjustment: float = 1.5) -> None:
    y = DRO_GROUP // 2
    groups = {"group": DRO_GROUP, "environment": DRO_GROUP % 2}
    method, twin = pair("group_dro", y, groups, step_size=0.3, adjustment=adjustment)
    reference = authors.GroupDRO(twin.network, {0: 5, 2: 2, 3: 5}, 0.3, adjustment)
    (phase,) = method.phases()
    side_by_side(
        method, twin, phase, [lambda b: reference(b.x, b.y.tolist(), b.group.tolist())], batches(y, **groups), rtol=1e-6
    )  # the buffers are made in float32
    q = [reference.q.get(g, 0.0) for g in range(4)]
    close(method.mixture, q, rtol=1e-6, atol=1e-10)
    assert max(q) > 0.4


ENVIRONMENT = torch.tensor([0, 0, 1, 1, 1, 3, 3, 0, 1, 3, 3, 3])  # environment 2 is not in the data


def check_invariant(name: str) -> None:
    """The penalty sets in at the third step, and the loss is divided by its weight from then on."""
    groups = {"group": ENVIRONMENT, "environment": ENVIRONMENT}
    method, twin = pair(name, Y, groups, penalty=20.0, penalty_from_epoch=2)
    reference = {"irm": authors.IRM, "vrex": authors.VREx}[name](twin.network, 20.0, 2)
    (phase,) = method.phases()
    side_by_side(
        method,
        twin,
        phase,
        [lambda b: reference(b.x, b.y.tolist(), b.environment.tolist())],
        batches(Y, **groups),
        rate=1e-3,
    )


def check_cvar_dro(share: float = 0.4) -> None:
    """0.4 of 6 samples is 2.4: the third counts in part."""
    method, twin = pair("cvar_dro", Y, share=share)
    (phase,) = method.phases()
    side_by_side(
        method, twin, phase,
        [lambda b: authors.cvar(authors.losses_of(twin.network(b.x), b.y.tolist()), share)], batches(Y),
    )  # fmt: skip


def held_out(y: Tensor) -> TrainSplit:
    return TrainSplit((images(len(y)) * 120 + 40 * y[:, None, None, None]).to(torch.uint8), y)


def check_afr() -> None:
    """Weights and steps of the last layer. It computes in float32, as inputs of a split are."""
    y = torch.arange(60) % 5 % 3  # classes of different size
    split = held_out(y)
    method = build("afr", y, held_out=0.5, gamma=3.0, l2=0.2, last_epochs=1)
    twin = copy.deepcopy(method)
    _, weigh, last = method.phases()
    weigh.fit(split)
    whole = split.batch(last.indices)
    with torch.no_grad():
        features = twin.network.features(whole.x)
    reference = authors.AFR(features, whole.y.tolist(), twin.network.last_layer, 3.0, 0.2)
    close(method.hard[last.indices], len(last.indices) * np.array(reference.weights), rtol=1e-5, atol=0)
    side_by_side(method, twin, last, [lambda _: reference()], [whole] * 5, rate=0.4, rtol=1e-4)


def check_afr_steps() -> None:
    """Full-batch steps, whose gradient is cut to length 1 where it is longer."""
    y = torch.arange(60) % 5 % 3
    split = held_out(y)
    method = build("afr", y, held_out=0.5, gamma=3.0, l2=0.2, last_steps=30, last_rate=0.1)
    with torch.no_grad():
        method.network.mean.weight.mul_(150)  # long features have long gradients
    twin = copy.deepcopy(method)
    first, fit = method.phases()
    chosen = sorted(set(range(60)) - set(first.indices.tolist()))
    with torch.no_grad():
        features = twin.network.features(split.batch(torch.tensor(chosen)).x).double()
    last = twin.network.last_layer.double()
    reference = authors.AFR(features, y[chosen].tolist(), last, 3.0, 0.2)
    lengths = []
    for _ in range(30):
        slopes = torch.autograd.grad(reference(), list(last.parameters()))
        lengths.append(math.sqrt(sum(value**2 for slope in slopes for value in slope.flatten().tolist())))
        with torch.no_grad():
            for parameter, slope in zip(last.parameters(), slopes, strict=True):
                parameter.sub_(0.1 * slope / max(1.0, lengths[-1]))
    assert max(lengths) > 1.1
    assert min(lengths) < 0.9
    start = method.network.last_layer.weight.detach().clone()
    fit.fit(split)
    for ours, theirs in zip(method.network.last_layer.parameters(), last.parameters(), strict=True):
        close(ours.detach(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert (method.network.last_layer.weight - start).abs().max() > 0.05


def check_dfr() -> None:
    """The subsets that were drawn are balanced, without repeats and not all alike. All after that is by hand.

    scikit-learn solves the regressions to a tighter tolerance than its own, so that the solutions can be compared.
    """
    group = torch.tensor([0] * 40 + [1] * 12 + [2] * 20 + [3] * 48)
    y = group // 2
    split = GroupSplit(held_out(y + group % 2).x, y, group, group % 2)
    method = build("dfr", y, {"group": group, "environment": group % 2}, held_out=0.5, subsets=4, inverse_penalty=3.0)
    first, fit = method.phases()
    chosen = sorted(set(range(len(y))) - set(first.indices.tolist()))
    with torch.no_grad():
        features = method.network.features(split.batch(torch.tensor(chosen)).x).double().numpy()
    labels, of = y[chosen].numpy(), group[chosen].tolist()
    draw, subsets = sitar.methods.dfr.balanced_subset, []

    def recorded(*given: Any) -> np.ndarray:
        subsets.append(draw(*given).tolist())
        return np.array(subsets[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sitar.methods.dfr, "balanced_subset", recorded)
        patch.setattr(sklearn.linear_model, "LogisticRegression", functools.partial(LogisticRegression, tol=1e-10))
        torch.manual_seed(1)
        fit.fit(split)
    smallest = min(of.count(one) for one in range(4))
    assert len(subsets) == 4
    assert len({tuple(sorted(subset)) for subset in subsets}) > 1
    for subset in subsets:
        assert len(set(subset)) == len(subset)
        assert [[of[place] for place in subset].count(one) for one in range(4)] == [smallest] * 4
    weight, bias = authors.dfr(features, labels, subsets, 3.0)
    last = method.network.last_layer
    ours = (last.weight[1] - last.weight[0]).detach().double().numpy()
    assert np.abs(weight).max() > 0.1
    assert 0 < smallest < min(40, len(chosen) / 4)
    close(ours, weight, rtol=1e-4, atol=1e-5 * np.abs(weight).max())
    close((last.bias[1] - last.bias[0]).item(), bias, rtol=1e-4, atol=1e-5)


def vae_pair(
    kind: str, alpha: float
) -> tuple[Any, Any, Callable[..., tuple[Tensor, Tensor, Tensor]], Callable[..., Tensor]]:
    """SITAR on a VAE of this kind, its twin, the twin's posterior, and what is not the divergence."""
    method, twin = pair("sitar", Y, vae=kind, beta=4.0, noise="axis", alpha=alpha, **{"lambda": 3.0})

    def latent(batch: TrainBatch) -> tuple[Tensor, Tensor, Tensor]:
        mu, log_var = twin.vae.encode(batch.x)
        return mu + torch.exp(log_var / 2) * torch.randn(mu.shape, dtype=mu.dtype), mu, log_var

    def rest(batch: TrainBatch, z: Tensor, mu: Tensor) -> Tensor:
        fit = authors.sitar(twin.classifier, z, mu, batch.y.tolist(), alpha, 3.0)
        return authors.squared_distance(twin.vae.decode(z), batch.x) + fit

    return method, twin, latent, rest


def check_tc(alpha: float = 0.0, rtol: float = 1e-8) -> None:
    method, twin, latent, rest = vae_pair("tc", alpha)

    def reference(batch: TrainBatch) -> Tensor:
        z, mu, log_var = latent(batch)
        return rest(batch, z, mu) + authors.tc_divergence(z, mu, log_var, len(Y), 4.0)

    (phase,) = method.phases()
    side_by_side(method, twin, phase, [reference], batches(Y), rate=1e-3, rtol=rtol)


def check_factor(alpha: float = 0.0, rtol: float = 1e-8) -> None:
    """Two losses, each with its own optimiser: of the VAE and classifier, and of the discriminator."""
    method, twin, latent, rest = vae_pair("factor", alpha)
    for model in (method, twin):
        with torch.no_grad():
            model.discriminator.layers[-1].weight.mul_(20)

    def reference(batch: TrainBatch) -> Tensor:
        z, mu, log_var = latent(batch)
        return (
            rest(batch, z, mu)
            + authors.kl_to_prior(mu, log_var)
            + 4.0 * authors.factor_correlation(twin.discriminator, z)
        )

    def judgement(batch: TrainBatch) -> Tensor:
        z = latent(batch)[0].detach()
        draw = torch.rand(z.shape, dtype=z.dtype)
        orders = torch.stack([draw[:, k].argsort() for k in range(z.shape[1])], 1)  # a permutation for every axis
        return authors.factor_judgement(twin.discriminator, z, orders)

    (phase,) = method.phases()
    side_by_side(method, twin, phase, [reference, judgement], batches(Y), rate=1e-3, rtol=rtol)


def check_jacobian() -> None:
    method, twin = pair("jacobian", Y, projections=2, **{"lambda": 0.5})

    def reference(batch: TrainBatch) -> Tensor:
        fit = authors.mean(authors.losses_of(twin.network(batch.x), batch.y.tolist()))
        directions = [torch.randn(len(batch.y), 3, dtype=torch.float64) for _ in range(2)]
        return fit + 0.25 * authors.projected_jacobian(twin.network, batch.x, directions)

    (phase,) = method.phases()
    side_by_side(method, twin, phase, [reference], batches(Y))


def check_curvature() -> None:
    method, twin = pair("curvature", Y, gamma=4.0, step=0.7)

    def reference(batch: TrainBatch) -> Tensor:
        fit = authors.mean(authors.losses_of(twin.network(batch.x), batch.y.tolist()))
        return fit + 4.0 * authors.curvature(twin.network, batch.x, batch.y.tolist(), 0.7)

    (phase,) = method.phases()
    side_by_side(method, twin, phase, [reference], batches(Y))


def unlabelled_batches(y: Tensor) -> list[UnlabelledBatch]:
    """The batches of `STEPS`, each with other inputs of which nothing is known."""
    others = [3 * images(len(step), seed=20 + number).double() for number, step in enumerate(STEPS)]
    return [UnlabelledBatch(**vars(b), unlabelled=other) for b, other in zip(batches(y), others, strict=True)]


def heads_of(network: nn.Module, x: Tensor, heads: int) -> list[Tensor]:
    """The outputs of each head, which stand side by side."""
    classes = int(Y.max()) + 1
    outputs = network(x)
    return [outputs[:, classes * head : classes * (head + 1)] for head in range(heads)]


def check_divdis(heads: int = 3) -> None:
    method, twin = pair("divdis", Y, heads=heads, diversity=3.0, marginal=2.0)

    def reference(batch: UnlabelledBatch) -> Tensor:
        source, target = (heads_of(twin.network, x, heads) for x in (batch.x, batch.unlabelled))
        return authors.divdis(source, target, batch.y.tolist(), 3.0, 2.0)

    (phase,) = method.phases()
    side_by_side(method, twin, phase, [reference], unlabelled_batches(Y))


def check_dbat(y: Tensor = Y) -> None:
    method, twin = pair("dbat", y, alpha=1.5)
    steps = unlabelled_batches(y)
    phases = method.phases()
    fit = [lambda b: authors.mean(authors.losses_of(twin.first(b.x), b.y.tolist()))]
    side_by_side(method, twin, next(phases), fit, steps)
    frozen = {name: tensor.clone() for name, tensor in method.first.state_dict().items()}

    def reference(batch: UnlabelledBatch) -> Tensor:
        fit = authors.mean(authors.losses_of(twin.second(batch.x), batch.y.tolist()))
        return fit + 1.5 * authors.dbat(twin.first(batch.unlabelled), twin.second(batch.unlabelled))

    side_by_side(method, twin, next(phases), [reference], steps)
    assert all(torch.equal(frozen[name], tensor) for name, tensor in method.first.state_dict().items())


def check_ace(each_pair: bool = False) -> None:
    """The share rises over three epochs from 0, and in the first step nothing disagrees yet."""
    method, twin = pair("ace", Y, weight=2.0, mix_rate=0.9, rise_epochs=3, each_pair=each_pair)
    epochs = iter(range(len(STEPS)))

    def reference(batch: UnlabelledBatch) -> Tensor:
        share = 0.9 * next(epochs) / 3
        fit = authors.mean(
            [authors.mean(authors.losses_of(h, batch.y.tolist())) for h in heads_of(twin.network, batch.x, 2)]
        )
        return fit + 2.0 * authors.ace(*heads_of(twin.network, batch.unlabelled, 2), share, each_pair)

    (phase,) = method.phases()
    side_by_side(method, twin, phase, [reference], unlabelled_batches(Y), rtol=1e-7)


CHECKS: dict[str, Callable[[], None]] = {
    "LfF": check_lff,
    "LfF, other settings": lambda: check_lff(q=0.4, decay=0.9),
    "JTT": check_jtt,
    "Group DRO": check_group_dro,
    "Group DRO, no adjustment": lambda: check_group_dro(0.0),
    "IRM": lambda: check_invariant("irm"),
    "V-REx": lambda: check_invariant("vrex"),
    "CVaR-DRO": check_cvar_dro,
    **{f"CVaR-DRO, share {share}": functools.partial(check_cvar_dro, share) for share in (0.01, 0.5, 1.0)},
    "AFR": check_afr,
    "AFR, steps": check_afr_steps,
    "DFR": check_dfr,
    "beta-TCVAE": check_tc,
    "beta-TCVAE, with noise": lambda: check_tc(0.7, rtol=1e-5),  # ours has the correlation in float32
    "FactorVAE": check_factor,
    "FactorVAE, with noise": lambda: check_factor(0.7, rtol=1e-5),
    "Jacobian": check_jacobian,
    "CURE": check_curvature,
    "DivDis": check_divdis,
    "DivDis, two heads": lambda: check_divdis(2),
    "D-BAT": check_dbat,
    "D-BAT, two classes": lambda: check_dbat(Y % 2),
    "ACE": check_ace,
    "ACE, each pair": lambda: check_ace(each_pair=True),
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_steps_are_those_of_the_authors_rule(name: str) -> None:
    CHECKS[name]()


def test_the_code_of_v_rex_has_twice_our_weight() -> None:
    """A weight w of their ColoredMNIST code is 2 w of ours: their gradient is then four times ours."""
    y, environment = Y % 2, torch.arange(12) % 2
    groups = {"group": environment, "environment": environment}
    for weight, factor in ((0.25, 2), (30.0, 4)):  # a weight above 1 also divides the loss: theirs by w, ours by 2 w
        method, twin = pair("vrex", y, groups, penalty=2 * weight, penalty_from_epoch=0)
        reference = authors.VRExOfTheCode(twin.network, weight, anneal_steps=0)
        (phase,) = method.phases()
        theirs = [lambda b, r=reference, f=factor: r(b.x, b.y.tolist(), b.environment.tolist()) / f]
        side_by_side(method, twin, phase, theirs, batches(y, **groups), rate=1e-3)


def test_projections_have_the_frobenius_norm_as_their_mean() -> None:
    """The mean over an orthonormal basis is the mean over all directions."""
    _, twin = pair("jacobian", Y)
    (batch, *_) = batches(Y)
    basis = [row.expand(len(batch.y), 3) for row in torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]]
    projected = authors.projected_jacobian(twin.network, batch.x, basis)
    close(projected, authors.frobenius(twin.network, batch.x).item(), rtol=1e-10)


def test_lff_weights_are_those_of_the_gradient() -> None:
    """The gradient by the debiased logits is weight * (p - onehot) / n: weights are read from it, sample by sample."""
    method, twin = pair("lff", LFF_Y, seed=5)
    reference = authors.LfF(twin.biased, twin.debiased, LFF_Y, 0.7, 0.7)
    logits: list[Tensor] = []
    method.debiased.last_layer.register_forward_hook(lambda _module, _inputs, output: logits.append(output))
    for batch in batches(LFF_Y):
        (slope,) = torch.autograd.grad(method.loss(batch)["loss"], logits[-1:])
        direction = (logits[-1].softmax(1) - nn.functional.one_hot(batch.y, 3)).detach() / len(batch.y)
        reference(batch.x, batch.index.tolist())
        close((slope * direction).sum(1) / direction.square().sum(1), reference.weights, rtol=1e-8, atol=0)


class Colour(nn.Module):
    """A network that sees the colour alone: the log-odds of the class that the colour names are its one parameter."""

    def __init__(self, log_odds: float) -> None:
        super().__init__()
        self.log_odds = nn.Parameter(torch.tensor(log_odds, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        red = 2 * x[:, 0, 0, 0] - 1
        return torch.stack([-red, red], 1) * self.log_odds / 2


@pytest.mark.parametrize("q", [0.12, 0.5, 0.7])
def test_a_network_that_sees_the_colour_settles_at_odds_of_9_to_a_power(q: float) -> None:
    """Where the colour names the label of 9 in 10, the biased loss of LfF has its slope 0 at odds 9^(1 / (1 - q))."""
    y = torch.arange(20) % 2
    colour = torch.where(torch.arange(20) < 2, 1 - y, y)  # two samples, one of each class, contradict their colour
    x = colour[:, None, None, None].expand(20, 3, 8, 8).double()

    def slope(log_odds: float) -> float:
        method = build("lff", y, q=q).double()
        method.biased = Colour(log_odds)
        terms = method.loss(TrainBatch(x, y, torch.arange(20)))
        return torch.autograd.grad(terms["biased"], method.biased.log_odds)[0].item()

    settled = math.log(9) / (1 - q)
    close(slope(settled), 0, atol=1e-12)
    assert slope(settled - 0.5) < 0 < slope(settled + 0.5)
    if q == 0.7:
        assert round(math.exp(settled)) == 1516


# wrong rules


def relative(change: Callable[[LfF, Tensor, Tensor, TrainBatch], Tensor]) -> Callable[..., Tensor]:
    """The update of LfF's running means, and a change of what is read from them."""

    def mutant(self: LfF, table: Tensor, loss: Tensor, batch: TrainBatch) -> Tensor:
        old, new, decay = table[batch.index], loss.detach(), self.config.decay
        moved = torch.where(old < 0, new, decay * old + (1 - decay) * new)
        table.copy_(table.scatter(0, batch.index, moved))
        return change(self, table, loss, batch)

    return mutant


def largest_of_class(self: LfF, table: Tensor, loss: Tensor, batch: TrainBatch) -> Tensor:
    largest = torch.stack([table[self.label == label].max() for label in batch.y])
    return table[batch.index] / largest


def largest_of_batch(self: LfF, table: Tensor, loss: Tensor, batch: TrainBatch) -> Tensor:
    values = table[batch.index]
    return values / torch.stack([values[batch.y == label].max() for label in batch.y])


def without_memory(self: LfF, table: Tensor, loss: Tensor, batch: TrainBatch) -> Tensor:
    table.copy_(table.scatter(0, batch.index, loss.detach()))
    return largest_of_class(self, table, loss, batch)


def never_unmarked(self: JTT, batch: TrainBatch) -> dict[str, Tensor]:
    logits = self.first(batch.x)
    wrong = self.wrong[batch.index] | (logits.argmax(1) != batch.y)
    self.wrong.copy_(self.wrong.scatter(0, batch.index, wrong))
    return {"loss": losses.cross_entropy(logits, batch.y)}


PHASES_OF_JTT = JTT.phases


def errors_alone(self: JTT) -> Iterator[Any]:
    phases: Any = PHASES_OF_JTT(self)
    yield next(phases)
    phase = next(phases)
    yield dataclasses.replace(phase, indices=phase.indices[len(self.wrong) :])


def dro(*, ascent: float = 1.0, adjusted: bool = True, early: bool = True) -> Callable[..., dict[str, Tensor]]:
    def mutant(self: GroupDRO, batch: GroupBatch) -> dict[str, Tensor]:
        each = losses.sample_cross_entropy(self.logits(batch.x), batch.y)
        risks, present = risk.group_risks(each, batch.group, len(self.mixture))
        before = self.mixture.clone()
        height = risks.detach() + self.adjustment * adjusted
        mixture = before * (ascent * self.config.step_size * height * present).exp()
        self.mixture.copy_(mixture / mixture.sum())
        return {"loss": ((self.mixture.clone() if early else before) * risks).sum()}

    return mutant


def not_divided(self: InvariantMethod, risks: Tensor, penalty: Tensor) -> dict[str, Tensor]:
    return {"loss": risks + self.penalty_weight * penalty}


def pulled_to_zero(self: AFR, batch: TrainBatch) -> dict[str, Tensor]:
    last = self.network.last_layer
    hard = self.hard[batch.index] * losses.sample_cross_entropy(last(self.network.features(batch.x).detach()), batch.y)
    return {"loss": hard.mean() + self.config.l2 * (last.weight.square().sum() + last.bias.square().sum())}


def afr_weights(sign: float = -1.0, by_class: bool = True) -> Callable[..., Tensor]:
    def mutant(logits: Tensor, y: Tensor, gamma: float) -> Tensor:
        p = logits.softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
        weight = torch.exp(sign * gamma * p) / (torch.bincount(y)[y] if by_class else 1)
        return weight / weight.sum()

    return mutant


def parts_of(swap: bool = False, num_train: int | None = None) -> Callable[..., tuple[Tensor, ...]]:
    def mutant(z: Tensor, mu: Tensor, log_var: Tensor, n: int) -> tuple[Tensor, ...]:
        information, correlation, rest = disentangle.kl_parts(z, mu, log_var, num_train or n)
        return (correlation, information, rest) if swap else (information, correlation, rest)

    return mutant


def curved(*, direction: Callable[[Tensor], Tensor] = torch.sign, power: float = 2, back: bool = False) -> Any:
    def mutant(loss: Callable[[Tensor], Tensor], x: Tensor, step: float) -> Tensor:
        here = torch.func.grad(loss)(x)
        way = direction(here.detach())
        way = way / way.flatten(1).norm(dim=1)[:, None, None, None]
        there = torch.func.grad(loss)(x - step * way if back else x + step * way)
        return (there - here).flatten(1).norm(dim=1).pow(power).mean()

    return mutant


SITAR = sitar.methods.sitar
COPIES = [  # from which mutants are made, unchanged: they must pass, or a mutant proves nothing
    ("LfF", LfF, "relative", relative(largest_of_class)),
    ("Group DRO", GroupDRO, "loss", dro()),
    ("AFR", sitar.methods.afr, "hardness", afr_weights()),
    ("beta-TCVAE", SITAR, "kl_parts", parts_of()),
    ("CURE", sitar.methods.curvature, "gradient_change", curved()),
]
MUTANTS: list[tuple[str, str, Any, str, Any]] = [
    ("LfF", "no largest loss of the class", LfF, "relative", relative(lambda self, t, _, b: t[b.index])),
    ("LfF", "largest of the batch", LfF, "relative", relative(largest_of_batch)),
    ("LfF", "largest of all", LfF, "relative", relative(lambda self, t, _, b: t[b.index] / t.max())),
    ("LfF", "no running mean", LfF, "relative", without_memory),
    ("JTT", "marks of all epochs", JTT, "first_loss", never_unmarked),
    ("JTT", "errors without the training set", JTT, "phases", errors_alone),
    ("Group DRO", "q stays", GroupDRO, "loss", dro(ascent=0.0)),
    ("Group DRO", "descends", GroupDRO, "loss", dro(ascent=-1.0)),
    ("Group DRO", "no adjustment", GroupDRO, "loss", dro(adjusted=False)),
    ("Group DRO", "q of the step before", GroupDRO, "loss", dro(early=False)),
    ("IRM", "not divided by the weight", InvariantMethod, "penalised", not_divided),
    ("IRM", "no annealing", InvariantMethod, "begin_epoch", lambda self, epoch: None),
    ("IRM", "half the slope", sitar.methods.irm, "scale_gradient", lambda f, y: risk.scale_gradient(f, y) / 2),
    ("IRM", "sign", sitar.methods.irm, "mean_risk", lambda r, p: -risk.mean_risk(r, p)),
    ("V-REx", "n - 1", sitar.methods.vrex, "risk_variance", lambda r, p: r[p].var()),
    ("V-REx", "deviation", sitar.methods.vrex, "risk_variance", lambda r, p: risk.risk_variance(r, p).sqrt()),
    ("V-REx", "sum of risks", sitar.methods.vrex, "mean_risk", lambda r, p: (r * p).sum()),
    ("CVaR-DRO", "whole samples only", sitar.methods.cvar_dro, "cvar",
     lambda each, share, _: each.topk(int(share * len(each)))[0].mean()),
    ("CVaR-DRO", "the best", sitar.methods.cvar_dro, "cvar", lambda each, share, _: -risk.cvar(-each, share)),
    ("CVaR-DRO", "the mean", sitar.methods.cvar_dro, "cvar", lambda each, *_: each.mean()),
    ("AFR", "sign of gamma", sitar.methods.afr, "hardness", afr_weights(sign=1.0)),
    ("AFR", "sizes of classes", sitar.methods.afr, "hardness", afr_weights(by_class=False)),
    ("AFR, steps", "not cut", sitar.methods.afr, "approach_last_layer",
     functools.partial(last_layer.approach_last_layer, longest=1e9)),
    ("AFR, steps", "solved", sitar.methods.afr, "approach_last_layer",
     lambda *problem, l2, **_: last_layer.fit_last_layer(*problem, l2=l2)),
    ("AFR", "pulled to zero", AFR, "last_loss", pulled_to_zero),
    ("DFR", "not balanced", sitar.methods.dfr, "balanced_subset", lambda group, _: np.arange(len(group))),
    ("DFR", "always the same subset", sitar.methods.dfr, "balanced_subset",
     lambda group, _: balanced_subset(group, np.random.default_rng(0))),
    ("beta-TCVAE", "weight on the information", SITAR, "kl_parts", parts_of(swap=True)),
    ("beta-TCVAE", "no training samples", SITAR, "kl_parts", parts_of(num_train=1)),
    ("FactorVAE", "sign", SITAR, "density_ratio", lambda logits: -disentangle.density_ratio(logits)),
    ("FactorVAE", "no half", SITAR, "discrimination", lambda a, b: 2 * disentangle.discrimination(a, b)),
    ("FactorVAE", "classes exchanged", SITAR, "discrimination", lambda a, b: disentangle.discrimination(b, a)),
    ("FactorVAE", "whole samples shuffled", SITAR, "permute_axes", lambda z: z[torch.rand_like(z)[:, 0].argsort()]),
    ("Jacobian", "not times C", sitar.methods.jacobian, "jacobian_norm",
     lambda f, x, n: smoothness.jacobian_norm(f, x, n) / 3),
    ("Jacobian", "one projection", sitar.methods.jacobian, "jacobian_norm",
     lambda f, x, n: smoothness.jacobian_norm(f, x, 1)),
    ("CURE", "not squared", sitar.methods.curvature, "gradient_change", curved(power=1)),
    ("CURE", "gradient for its sign", sitar.methods.curvature, "gradient_change", curved(direction=lambda g: g)),
    ("CURE", "backwards", sitar.methods.curvature, "gradient_change", curved(back=True)),
    ("DivDis", "sum over pairs", sitar.methods.divdis, "mutual_information",
     lambda p: 3 * disagreement.mutual_information(p)),
    ("DivDis", "sign", sitar.methods.divdis, "mutual_information", lambda p: -disagreement.mutual_information(p)),
    ("DivDis", "divergence the other way round", sitar.methods.divdis, "marginal_divergence",
     lambda p, q: (q * (q / p.mean(0)).log()).sum(1).mean()),
    ("D-BAT", "agrees", sitar.methods.dbat, "agreement", lambda p, q: -disagreement.agreement(p, q)),
    ("D-BAT", "the second one's class", sitar.methods.dbat, "agreement", lambda p, q: disagreement.agreement(q, p)),
    ("ACE", "the largest", sitar.methods.ace, "smallest_mean", lambda v, share: -disagreement.smallest_mean(-v, share)),
    ("ACE", "sum, not mean", sitar.methods.ace, "smallest_mean",
     lambda v, share: disagreement.smallest_mean(v, share) * len(v) * share),
    ("ACE", "at once", ACE, "begin_epoch", lambda self, epoch: None),
    ("ACE, each pair", "the share for every pair", sitar.methods.ace, "smallest_mean",
     lambda v, share: disagreement.smallest_mean(v, 2 * share)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "attribute", "same"), [pytest.param(*c, id=c[0]) for c in COPIES])
def test_a_copy_of_the_rule_passes(
    name: str, place: Any, attribute: str, same: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, attribute, same)
    CHECKS[name]()


@pytest.mark.parametrize(
    ("name", "wrong", "place", "attribute", "mutant"), [pytest.param(*m, id=f"{m[0]}: {m[1]}") for m in MUTANTS]
)
def test_a_wrong_rule_is_refused(
    name: str, wrong: str, place: Any, attribute: str, mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, attribute, mutant)
    with pytest.raises(AssertionError):
        CHECKS[name]()
