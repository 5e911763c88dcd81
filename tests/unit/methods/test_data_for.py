"""The one gate to what is not x and y: groups, unlabelled inputs, and what a run is told to ignore."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from sitar.data.types import Data, GroupSplit, TrainSplit, UnlabelledBatch
from sitar.errors import ConfigError
from sitar.methods import data_for
from sitar.methods.erm import ERM, ERMConfig
from sitar.registry import DATASETS, METHODS
from sitar.testing import toy
from sitar.testing.methods import MethodCase


class GreedyConfig(ERMConfig):
    name: Literal["greedy"] = "greedy"  # type: ignore[reportIncompatibleVariableOverride]


class Greedy(ERM):
    """It asks for groups, and for unlabelled inputs too."""

    Config = GreedyConfig
    needs_groups = True
    needs_unlabelled = True


def given(name: str, to_learn: bool = True, **options: object) -> Data:
    case = MethodCase(name, options)
    config, data = case.config(), toy.Toy.load(toy.ToyConfig())
    with DATASETS.holding({toy.NAME: toy.Toy}):
        return data_for(config, data, to_learn=to_learn)


def test_unlabelled_inputs_and_nuisances_compose() -> None:
    data = given("sitar", unlabelled=True, nuisances=["mean_colour", "color"])
    assert isinstance(data.train.batch(torch.arange(4)), UnlabelledBatch)
    assert data.nuisances is not None
    assert [nuisance.name for nuisance in data.nuisances.about] == ["mean_colour", "color"]
    assert len(data.nuisances.values) == len(data.train)


def test_a_trained_method_is_given_neither() -> None:
    data = given("sitar", to_learn=False, unlabelled=True, nuisances=["mean_colour"])
    assert type(data.train) is TrainSplit
    assert data.nuisances is None


def test_a_method_that_asks_for_nothing_is_given_nothing() -> None:
    data = given("erm")
    assert type(data.train) is TrainSplit
    assert data.nuisances is None
    assert isinstance(given("group_dro").train, GroupSplit)


def test_groups_and_unlabelled_inputs_together_are_refused() -> None:
    with METHODS.holding({"greedy": Greedy}), pytest.raises(ConfigError, match="groups and for unlabelled inputs"):
        given("greedy")
