"""Weights, held-out samples and groups reach the data that a method trains on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sitar.errors import InputError
from sitar.estimator.samples import MOST, labelled_samples, weighted_rows


def counts(weight: list[float], seed: int = 0) -> list[int]:
    rows = weighted_rows(np.array(weight), np.random.RandomState(seed))
    return np.bincount(rows, minlength=len(weight)).tolist()


def test_whole_multiples_are_met_exactly() -> None:
    assert counts([1, 1, 1]) == [1, 1, 1]
    assert counts([0.5, 1, 1.5]) == [1, 2, 3]


def test_equal_weights_keep_the_order() -> None:
    rows = weighted_rows(np.full(50, 0.3), np.random.RandomState(0))
    assert rows.tolist() == list(range(50))


def test_other_weights_are_met_to_one_row() -> None:
    weight = np.random.RandomState(0).gamma(0.5, size=200)
    found = np.bincount(weighted_rows(weight, np.random.RandomState(1)), minlength=200)
    assert found.sum() == MOST * 200
    assert np.abs(found - weight / weight.sum() * found.sum()).max() < 1


def test_a_weight_of_zero_leaves_a_sample_out() -> None:
    x = torch.arange(6.0).unsqueeze(1)
    data = labelled_samples(x, np.array([0, 1, 0, 1, 0, 1]), [1, 1, 0, 2, 1, 0]).data(None, 0)
    assert sorted(data.train.x.squeeze(1).tolist()) == [0, 1, 3, 3, 4]
    assert data.evaluation == {}


def test_class_weights_multiply_sample_weights() -> None:
    x, y = torch.arange(4.0).unsqueeze(1), np.array(["a", "a", "a", "b"])
    data = labelled_samples(x, y, [1, 1, 2, 1], {"a": 1, "b": 3}).data(None, 0)
    assert sorted(data.train.x.squeeze(1).tolist()) == [0, 1, 2, 2, 3, 3, 3]
    balanced = labelled_samples(x, y, None, "balanced").data(None, 0)
    assert balanced.train.y.bincount().tolist() == [3, 3]


@pytest.mark.parametrize("fraction", [None, 0.2])
def test_a_weight_of_zero_leaves_a_sample_out_of_the_balance_of_classes(fraction: float | None) -> None:
    x, y = torch.arange(40.0).unsqueeze(1), np.repeat([0, 1, 0], [5, 15, 20])
    weight = np.where(np.arange(40) < 20, 1.0 + (np.arange(40) % 3), 0.0)
    weighed = labelled_samples(x, y, weight, "balanced").data(fraction, 0)
    removed = labelled_samples(x[:20], y[:20], weight[:20], "balanced").data(fraction, 0)
    assert torch.equal(weighed.train.x, removed.train.x)
    assert weighed.evaluation.keys() == removed.evaluation.keys()


def test_classes_are_balanced_by_weight_as_logistic_regression_does() -> None:
    y, weight = np.repeat(["a", "b", "c"], [2, 5, 3]), np.array([3.0, 1, 2, 2, 0, 1, 1, 5, 0, 0])
    found = labelled_samples(torch.zeros(10, 1), y, weight, "balanced").weight
    by_class = LogisticRegression(class_weight="balanced", tol=1e-10)
    x = np.random.RandomState(0).randn(10, 2)
    by_weight = LogisticRegression(tol=1e-10).fit(x, y, found)
    np.testing.assert_allclose(by_class.fit(x, y, weight).coef_, by_weight.coef_, rtol=1e-5)
    np.testing.assert_allclose([found[y == name].sum() for name in "abc"], weight.sum() / 3)


def test_held_out_samples_are_of_every_class_and_not_trained_on() -> None:
    x, y = torch.arange(100.0).unsqueeze(1), np.repeat([0, 1], [80, 20])
    data = labelled_samples(x, y).data(0.1, 0)
    val = data.evaluation["val"]
    assert val.y.bincount().tolist() == [8, 2]
    assert not set(val.x.squeeze(1).tolist()) & set(data.train.x.squeeze(1).tolist())
    assert len(val) + len(data.train) == 100


def test_groups_are_cells_of_label_and_attribute() -> None:
    x, y = torch.zeros(6, 1), np.array([0, 0, 0, 1, 1, 1])
    attribute = ["red", "red", "green", "green", "green", "red"]
    data = labelled_samples(x, y, attribute=attribute).data(None, 0)
    assert data.train_groups is not None
    assert data.train_groups.group.tolist() == [1, 1, 0, 2, 2, 3]
    assert data.train_groups.environment.tolist() == [0, 0, 1, 0, 0, 1]  # the larger diagonal follows the shortcut
    assert data.attributes == {"attribute": ("green", "red")}


def test_what_cannot_be_learned_from_is_refused() -> None:
    x = torch.zeros(3, 1)
    with pytest.raises(InputError, match="one class, 'a'"):
        labelled_samples(x, np.array(["a", "a", "a"]))
    with pytest.raises(InputError, match="one class"):
        labelled_samples(x, np.array([0, 0, 1]), [1, 1, 0])
    with pytest.raises(ValueError, match="at least one non-zero"):
        labelled_samples(x, np.array([0, 0, 1]), [0, 0, 0])
    with pytest.raises(ValueError, match="Negative values"):
        labelled_samples(x, np.array([0, 0, 1]), [1, -1, 1])
    with pytest.raises(ValueError, match="inconsistent"):
        labelled_samples(x, np.array([0, 0, 1]), attribute=[1, 2])


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: 1, 1: 0}, "of one class, 0"),
        ({0: 0, 1: 0}, "No sample has a weight above 0"),
        ({0: 1, 1: -1}, "finite numbers of 0 or more"),
        ({0: 1, 1: np.nan}, "finite numbers of 0 or more"),
    ],
)
def test_class_weights_that_leave_no_two_classes_are_refused(class_weight: dict[int, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        labelled_samples(torch.zeros(4, 1), np.array([0, 1, 0, 1]), None, class_weight)


def test_weights_have_any_scale() -> None:
    assert counts([1e308] * 3) == [1, 1, 1]
    assert counts([1e-320, 1, 1]) == counts([1e-3, 1, 1])


@pytest.mark.parametrize("fraction", [0, 1, 2, -0.1])
def test_a_fraction_is_no_number_of_samples(fraction: float) -> None:
    with pytest.raises(InputError, match="validation_fraction"):
        labelled_samples(torch.zeros(8, 1), np.arange(8) % 2).data(fraction, 0)


@pytest.mark.parametrize("y", [[0] * 19 + [1], [0, 1] * 3])
def test_too_few_samples_to_hold_out_say_what_to_do(y: list[int]) -> None:
    with pytest.raises(InputError, match="early_stopping=False"):
        labelled_samples(torch.zeros(len(y), 1), np.array(y)).data(0.1, 0)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ([np.nan, 1.0, 1.0, 0.0], "misses the value"),
        (["a", None, "b", "a"], "misses the value"),
        (pd.Series(["a", pd.NA, "b", "a"], dtype="string"), "misses the value"),
        (np.array(["a", 1, "b", 2], dtype=object), "several kinds"),
    ],
)
def test_every_sample_needs_an_attribute(attribute: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        labelled_samples(torch.zeros(4, 1), np.array([0, 1, 0, 1]), attribute=attribute)
