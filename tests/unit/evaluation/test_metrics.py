"""Metrics of a split, predictions and selection criteria."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from fairlearn.metrics import MetricFrame
from scipy.special import softmax as scipy_softmax
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from helpers import referees
from helpers.referees import close, predictions
from sitar.data import Data
from sitar.errors import ConfigError
from sitar.evaluation import metrics
from sitar.evaluation.metrics import (
    Predictions,
    bootstrap_intervals,
    group_accuracies,
    split_metrics,
)
from sitar.evaluation.predict import predict_logits
from sitar.evaluation.selection import check_selection, criterion

pytestmark = pytest.mark.shapes

NAMES = ("label=0,color=0", "label=0,color=1", "label=1,color=0", "label=1,color=1")
KEYS = {
    "n", "average", "adjusted_average", "class_balanced", "worst_group", "calibration_error",
    "auroc", "auprc", "f1", "groups", "intervals",
}  # fmt: skip


@pytest.mark.parametrize(
    ("check", "function"),
    [
        ("softmax", metrics.softmax),
        ("group_accuracies", metrics.group_accuracies),
        ("worst_group", metrics.worst_group),
        ("adjusted_average", metrics.adjusted_average),
        ("class_balanced", metrics.class_balanced),
        ("calibration_error", metrics.calibration_error),
        ("ranking", referees.ranking_of(metrics)),
        ("bootstrap", metrics.bootstrap_intervals),
    ],
)
def test_metric(check, function):
    getattr(referees, f"check_{check}")(function)


def test_split_against_fairlearn_and_sklearn():
    logits, y, group = predictions()
    share = (0.4, 0.1, 0.2, 0.3)
    found = split_metrics(Predictions(logits, y, group, NAMES, share), resamples=50)
    predicted = logits.argmax(1)
    frame = MetricFrame(metrics=accuracy_score, y_true=y, y_pred=predicted, sensitive_features=group)
    assert set(found) == KEYS
    assert found["n"] == len(y)
    close(found["average"], frame.overall)
    close(found["worst_group"], frame.group_min())
    close(found["class_balanced"], balanced_accuracy_score(y, predicted))
    close(found["adjusted_average"], np.dot(share, frame.by_group.to_numpy()))
    assert list(found["groups"]) == list(NAMES)
    for i, name in enumerate(NAMES):
        assert found["groups"][name]["n"] == (group == i).sum()
        close(found["groups"][name]["accuracy"], frame.by_group[i])
    close(found["calibration_error"], metrics.calibration_error(scipy_softmax(logits, axis=1), predicted == y))
    assert found["intervals"].keys() == {"average", "class_balanced", "worst_group"}
    for name, (low, high) in found["intervals"].items():
        assert low < found[name] < high
    json.dumps(found, allow_nan=False)


def test_three_classes():
    logits, y, group = predictions(3)
    names = tuple(f"g{i}" for i in range(6))
    found = split_metrics(Predictions(logits, y, group, names), resamples=50)
    frame = MetricFrame(metrics=accuracy_score, y_true=y, y_pred=logits.argmax(1), sensitive_features=group)
    close(found["worst_group"], frame.group_min())
    close(found["class_balanced"], balanced_accuracy_score(y, logits.argmax(1)))
    close(found["f1"], f1_score(y, logits.argmax(1), average="macro"))
    assert found["adjusted_average"] is None


def test_empty_group_is_none_and_not_the_worst():
    logits, y, group = predictions()
    keep = group != 2
    found = split_metrics(Predictions(logits[keep], y[keep], group[keep], NAMES, (0.5, 0.0, 0.0, 0.5)), resamples=20)
    assert found["groups"]["label=1,color=0"] == {"n": 0, "accuracy": None}
    present = [entry["accuracy"] for entry in found["groups"].values() if entry["n"]]
    assert found["worst_group"] == min(present) > 0
    assert found["adjusted_average"] is not None
    assert found["intervals"]["worst_group"][0] > 0


def test_a_group_of_training_that_is_empty_here_leaves_no_adjusted_average():
    logits, y, group = predictions()
    keep = group != 2
    kept = Predictions(logits[keep], y[keep], group[keep], NAMES, (0.25,) * 4)
    assert split_metrics(kept, 0)["adjusted_average"] is None


def test_without_groups():
    logits, y, _ = predictions()
    found = split_metrics(Predictions(logits, y), resamples=20)
    assert found["groups"] == {}
    assert found["worst_group"] is None
    assert found["adjusted_average"] is None
    assert found["intervals"]["worst_group"] is None
    close(found["average"], accuracy_score(y, logits.argmax(1)))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_empty_split(num_classes):
    empty = np.zeros(0, dtype=np.int64)
    found = split_metrics(Predictions(np.zeros((0, num_classes), dtype=np.float32), empty, empty, NAMES, (0.25,) * 4))
    assert set(found) == KEYS
    assert found["n"] == 0
    assert all(entry == {"n": 0, "accuracy": None} for entry in found["groups"].values())
    assert found["intervals"] == {"average": None, "class_balanced": None, "worst_group": None}
    assert {found[key] for key in KEYS - {"n", "groups", "intervals"}} == {None}


@pytest.mark.parametrize("guess", [0, 1])
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_no_ranking(label, guess):
    y = np.full(5, label)
    logits = np.tile(np.array([1.0 - guess, guess], dtype=np.float32), (5, 1))
    found = split_metrics(Predictions(logits, y), resamples=20)
    assert found["auroc"] is None
    assert found["auprc"] is None
    assert found["f1"] == float(label == guess == 1)
    assert found["average"] == found["class_balanced"] == float(label == guess)


def test_absent_class_of_three():
    logits, y, _ = predictions(3)
    keep = y != 1
    found = referees.ranking_of(metrics)(metrics.softmax(logits[keep]), y[keep])
    assert found["auroc"] is None
    close(found["f1"], f1_score(y[keep], logits[keep].argmax(1), labels=[0, 1, 2], average="macro", zero_division=0))


def test_bootstrap_is_seeded_and_all_right_is_certain():
    logits, y, group = predictions()
    correct = logits.argmax(1) == y
    assert bootstrap_intervals(correct, y, group) == bootstrap_intervals(correct, y, group)
    certain = bootstrap_intervals(np.ones_like(correct), y, group, resamples=50)
    assert certain == {"average": [1, 1], "class_balanced": [1, 1], "worst_group": [1, 1]}


def test_bootstrap_level_and_rare_groups():
    """A group of one sample is missing from many resamples: no NaN and no warning."""
    logits, y, group = predictions(n=40)
    group[0], group[1:] = 3, group[1:] % 3
    found = bootstrap_intervals(logits.argmax(1) == y, y, group, resamples=300)
    narrow = bootstrap_intervals(logits.argmax(1) == y, y, group, resamples=300, level=0.5)
    for name in found:
        assert np.isfinite(found[name]).all()
        assert found[name][0] <= narrow[name][0] <= narrow[name][1] <= found[name][1]
    assert np.diff(narrow["average"]) < np.diff(found["average"])


def test_no_resamples_no_intervals():
    logits, y, _ = predictions()
    assert "intervals" not in split_metrics(Predictions(logits, y), resamples=0)


def test_more_groups_than_names_are_an_error():
    with pytest.raises(ValueError, match=r"zip\(\)"):
        split_metrics(Predictions(*predictions(), NAMES[:2]), resamples=0)


def test_group_sizes_are_plain_numbers():
    (n, accuracy), *_ = group_accuracies(np.array([True, False]), np.array([0, 0]), 1)
    assert (type(n), type(accuracy)) == (int, float)


def test_predict_logits_batch_by_batch():
    x = torch.arange(7 * 4, dtype=torch.uint8).reshape(7, 1, 2, 2)
    seen = []

    def logits(images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return torch.stack([images.sum((1, 2, 3)), images.amax((1, 2, 3))], 1).double()

    found = predict_logits(logits, x, torch.device("cpu"), batch_size=3)
    assert seen == [3, 3, 1]
    assert found.dtype == np.float32
    close(found, np.stack([x.numpy().sum((1, 2, 3)) / 255, x.numpy().max((1, 2, 3)) / 255], 1))


def test_predict_logits_of_nothing_and_without_gradient():
    layer = torch.nn.Linear(3, 2)
    assert predict_logits(layer, torch.zeros(0, 3), torch.device("cpu")).shape == (0, 2)
    assert predict_logits(layer, torch.ones(4, 3), torch.device("cpu")).shape == (4, 2)


SELECTIONS = ("last", "val_average", "val_class_balanced", "val_worst_group")


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_criterion_is_fine_with_all_groups(selection, tiny_data):
    check_selection(selection, tiny_data)


@pytest.mark.parametrize("selection", SELECTIONS[1:])
def test_criterion_without_val(selection, tiny_data):
    data = dataclasses.replace(tiny_data, evaluation={"id_test": tiny_data.evaluation["val"]})
    check_selection("last", data)
    with pytest.raises(ConfigError, match=f"{selection}.*val split.*has none"):
        check_selection(selection, data)


def with_val(data: Data, **changes) -> Data:
    return dataclasses.replace(data, evaluation={"val": dataclasses.replace(data.evaluation["val"], **changes)})


def test_worst_group_without_groups(tiny_data):
    data = with_val(tiny_data, group=None, group_names=(), group_share=None)
    check_selection("val_class_balanced", data)
    with pytest.raises(ConfigError, match="needs groups, and val has none"):
        check_selection("val_worst_group", data)


def test_worst_group_with_an_absent_group(tiny_data):
    group = tiny_data.evaluation["val"].group.clone()
    group[group == 1] = 0
    data = with_val(tiny_data, group=group)
    check_selection("val_average", data)
    with pytest.raises(ConfigError, match=r"label=0,color=1 has no sample in val"):
        check_selection("val_worst_group", data)


def test_criterion_reads_its_metric():
    found = {"average": 0.9, "class_balanced": 0.8, "worst_group": 0.1}
    assert [criterion(s, found) for s in SELECTIONS[1:]] == [0.9, 0.8, 0.1]
