"""Class weights, the same for every method: a class that weighs three times as much is one with three copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sitar.methods.chroma_vae
import sitar.methods.sitar
from helpers.referees import close
from sitar.config import section_config
from sitar.data import GroupBatch, TrainBatch, UnlabelledBatch
from sitar.errors import ConfigError
from sitar.functional.losses import cross_entropy, sample_cross_entropy, weighted_mean
from sitar.functional.risk import cvar, group_risks
from sitar.methods import GradientPhase, Method
from sitar.methods.base import WeightedConfig
from sitar.registry import METHODS

from .test_baselines import build, images

Y = torch.tensor([0] * 9 + [1] * 3)  # the balanced weights are 2/3 and 2
GROUPS = {"group": 2 * Y + torch.arange(12) % 2, "environment": torch.arange(12) % 2}
THRICE = torch.cat([torch.arange(12), torch.arange(9, 12).repeat(2)])
WEIGHTED = [name for name in METHODS.names() if issubclass(METHODS.get(name).Config, WeightedConfig)]
# what the weights reach, in each gradient phase; the other terms are means over samples, whatever their class
TERMS: dict[str, list[set[str]]] = {
    "ace": [{"cross_entropy"}],
    "afr": [{"loss"}],
    "chroma_vae": [{"cross_entropy"}, {"loss"}],
    "curvature": [{"cross_entropy"}],
    "cvar_dro": [{"loss", "cross_entropy"}],
    "dbat": [{"loss"}, {"cross_entropy"}],
    "dfr": [{"loss"}],
    "divdis": [{"cross_entropy"}],
    "erm": [{"loss"}],
    "irm": [{"loss", "cross_entropy", "penalty"}],
    "jacobian": [{"cross_entropy"}],
    "jtt": [{"loss"}, {"loss"}],
    "lff": [{"loss", "biased", "debiased"}],
    "sitar": [{"cross_entropy", "shortcut_score"}],
    "sitar_auto": [{"loss"}, *[{"cross_entropy", "shortcut_score"}] * 3],
    "vrex": [{"loss", "cross_entropy", "penalty"}],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "chroma_vae": {"head": "logistic"},
    "sitar": {"alpha": 0.0},
    "sitar_auto": {"alpha": 1e-30},
}


def built(name: str, **options: Any) -> Method:
    groups = GROUPS if METHODS.get(name).needs_groups else None
    return build(name, Y, groups, seed=2, **OPTIONS.get(name, {}), **options)


def terms(name: str, index: Tensor, **options: Any) -> list[dict[str, Tensor]]:
    """What a fresh method's losses say of the samples at `index`, phase by phase."""
    method = built(name, **options)
    x = 3 * images(len(Y))[index]
    batch = TrainBatch(x, Y[index], index)
    if method.needs_groups:
        batch = GroupBatch(x, Y[index], index, **{name: values[index] for name, values in GROUPS.items()})
    if method.needs_unlabelled:
        batch = UnlabelledBatch(**vars(batch), unlabelled=3 * images(len(Y), seed=1))
    found = []
    for phase in method.phases():
        if isinstance(phase, GradientPhase):
            torch.manual_seed(0)
            found.append({key: value.detach() for key, value in phase.objectives[0].loss(batch).items()})
    return found


@pytest.fixture
def _mean_latent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No random draw, so that a repeated sample has the latent of its first."""
    for module in (sitar.methods.chroma_vae, sitar.methods.sitar):
        monkeypatch.setattr(module, "reparameterise", lambda mu, log_var: mu)


@pytest.mark.usefixtures("_mean_latent")
@pytest.mark.parametrize("name", WEIGHTED)
def test_a_weight_is_a_number_of_copies(name: str) -> None:
    once = torch.arange(len(Y))
    runs = terms(name, once, class_weight="balanced"), terms(name, THRICE), terms(name, once), TERMS[name]
    for weighted, copied, plain, reached in zip(*runs, strict=True):
        for term in reached:
            close(weighted[term], copied[term].numpy(), rtol=1e-4)
            assert not torch.allclose(weighted[term], plain[term], rtol=1e-3), f"{term} is as without weights"
        for term in weighted.keys() - reached - {"loss"}:
            close(weighted[term], plain[term].numpy(), rtol=1e-6)


@pytest.mark.usefixtures("_mean_latent")
@pytest.mark.parametrize("name", [name for name in WEIGHTED if "loss" not in TERMS[name][0]])
def test_what_is_minimised_has_the_weighted_term_in_it(name: str) -> None:
    once = torch.arange(len(Y))
    weighted, plain = terms(name, once, class_weight="balanced")[0], terms(name, once)[0]
    close(weighted["loss"] - plain["loss"], (weighted["cross_entropy"] - plain["cross_entropy"]).item(), rtol=1e-2)


def test_methods_without_a_cross_entropy_to_weigh_refuse_the_setting() -> None:
    """A group has one class, whose weight would cancel; the diffusion classifier has its prior, the VAE no label."""
    without = [name for name in METHODS.names() if name not in WEIGHTED]
    assert without == ["diffusion", "group_dro", "vae"]
    for name in without:
        with pytest.raises(ConfigError, match=r"Unknown key 'method\.class_weight'"):
            section_config("method", {"name": name, "class_weight": "balanced"})


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_kept_with_the_model_and_only_where_asked_for(name: str) -> None:
    assert "class_weight" not in built(name).state_dict()
    close(built(name, class_weight="balanced").state_dict()["class_weight"], [2 / 3, 2], rtol=1e-6)


WEIGHT = np.random.default_rng(3).uniform(0.2, 4, 20)
LOSSES = np.random.default_rng(4).exponential(size=20)


def test_weighted_mean_is_numpys_and_that_of_cross_entropy() -> None:
    close(weighted_mean(torch.tensor(LOSSES), torch.tensor(WEIGHT)), np.average(LOSSES, weights=WEIGHT))
    close(weighted_mean(torch.tensor(LOSSES)), LOSSES.mean())
    logits, weight = torch.randn(12, 2), torch.tensor([0.3, 2.0])
    by_sample = weighted_mean(sample_cross_entropy(logits, Y), weight[Y])
    close(by_sample, cross_entropy(logits, Y, weight).item(), rtol=1e-5)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.77, 1.0])
def test_weighted_cvar_is_its_dual_definition(share: float) -> None:
    actual = cvar(torch.tensor(LOSSES), share, torch.tensor(WEIGHT))
    dual = [eta + np.average(np.maximum(LOSSES - eta, 0), weights=WEIGHT) / share for eta in LOSSES]
    close(actual, min(dual), rtol=1e-9)
    close(cvar(torch.tensor(LOSSES), share, torch.full((20,), 7.0)), cvar(torch.tensor(LOSSES), share).item())


def test_weighted_group_risks() -> None:
    group = np.arange(20) % 3
    risks, present = group_risks(torch.tensor(LOSSES), torch.tensor(group), 4, torch.tensor(WEIGHT))
    expected = [np.average(LOSSES[group == g], weights=WEIGHT[group == g]) for g in range(3)]
    close(risks, [*expected, 0])
    assert present.tolist() == [True, True, True, False]
