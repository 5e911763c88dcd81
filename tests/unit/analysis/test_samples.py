"""Which samples a trained model is asked about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sitar.analysis.samples import held_out, in_turn, permutation, refuse_features, subset, trial_split
from sitar.data.benchmarks.color_mnist import ColorMNISTConfig
from sitar.data.types import EvalSplit
from sitar.errors import DataError


def model_of(shape: tuple[int, ...] = (3, 2, 2), **sizes: int) -> Any:
    splits = {name: EvalSplit(torch.arange(n)[:, None], torch.arange(n) % 2) for name, n in sizes.items()}
    data, task = SimpleNamespace(evaluation=splits, train=range(7)), SimpleNamespace(shape=shape)
    return SimpleNamespace(data=data, task=task, config=SimpleNamespace(data=ColorMNISTConfig()))


def test_all_samples_keep_their_order_and_a_choice_is_the_same_again() -> None:
    assert subset(5, 5).tolist() == [0, 1, 2, 3, 4]
    chosen = subset(100, 10)
    assert len(chosen.unique()) == 10
    assert torch.equal(chosen, subset(100, 10))
    assert torch.equal(chosen, permutation(100)[:10])
    assert not torch.equal(permutation(100), torch.arange(100))


def test_held_out_samples_are_of_val() -> None:
    x, y = held_out(model_of(val=9, test=30), most=4)
    assert torch.equal(x.squeeze(1), permutation(9)[:4])
    assert torch.equal(y, x.squeeze(1) % 2)
    assert len(held_out(model_of(val=1), most=4)[1]) == 1
    assert held_out(model_of(val=9), most=9)[0].squeeze(1).tolist() == list(range(9))
    assert torch.equal(held_out(model_of(val=9), most=9, mixed=True)[0].squeeze(1), permutation(9))


@pytest.mark.parametrize("sizes", [{}, {"val": 0}, {"test": 30}, {"val": 1}])
def test_data_without_held_out_samples_is_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(DataError, match="no val split with samples, and samples that were trained on do not count"):
        held_out(model_of(**sizes), most=10, least=2)


def test_classes_come_in_turn() -> None:
    y = torch.tensor([1, 1, 0, 2, 0, 1])
    assert y[in_turn(y)].tolist() == [0, 1, 2, 0, 1, 1]
    assert in_turn(y).tolist() == [2, 0, 3, 4, 1, 5]


def test_a_model_is_tried_out_of_distribution_where_it_can_be() -> None:
    assert trial_split(model_of(val=2, test=2, ood_test=2))[0] == "ood_test"
    assert trial_split(model_of(val=2, test=2, ood_test=0))[0] == "test"
    assert trial_split(model_of(val=2))[0] == "val"
    with pytest.raises(DataError, match="no split called ood_test, test, id_test, val"):
        trial_split(model_of(train=2))


def test_features_are_no_images() -> None:
    refuse_features(model_of())
    with pytest.raises(DataError, match="features, not images"):
        refuse_features(model_of(shape=(64,)))
