"""Metrics of a split, predictions and selection criteria."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from fairlearn.metrics import MetricFrame
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import softmax as scipy_softmax
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    roc_auc_score,
)

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
    "core_auc", "shortcut_auc", "auroc", "auprc", "f1", "groups", "intervals",
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
    assert found["intervals"].keys() == {"average", "class_balanced", "worst_group", "core_auc", "shortcut_auc"}
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
    names, share = tuple(f"g{i}" for i in range(2 * num_classes)), (0.5 / num_classes,) * 2 * num_classes
    found = split_metrics(Predictions(np.zeros((0, num_classes), dtype=np.float32), empty, empty, names, share))
    assert set(found) == KEYS
    assert found["n"] == 0
    assert all(entry == {"n": 0, "accuracy": None} for entry in found["groups"].values())
    assert set(found["intervals"].values()) == {None}
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


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(6, 60), st.integers(0, 10**6))
def test_ranking_of_tied_scores_against_sklearn(classes, values, n, seed):
    """Probabilities of so few values have many ties."""
    random = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), random.integers(0, classes, n)])
    score = random.integers(1, values + 1, (len(y), classes)).astype(float)
    probability = score / score.sum(1, keepdims=True)
    truth, found = np.eye(classes, dtype=int)[y], referees.ranking_of(metrics)(probability, y)
    pick = slice(1, 2) if classes == 2 else slice(None)
    close(found["auroc"], roc_auc_score(truth[:, pick], probability[:, pick], average="macro"))
    close(found["auprc"], average_precision_score(truth[:, pick], probability[:, pick], average="macro"))
    average = "binary" if classes == 2 else "macro"
    close(found["f1"], f1_score(y, probability.argmax(1), average=average, zero_division=0))


def test_ranking_does_not_exist_where_a_probability_is_not_a_number():
    probability, y = np.array([[0.2, 0.8], [np.nan, np.nan], [0.5, 0.5]]), np.array([1, 0, 0])
    assert metrics.auroc(probability, y) is metrics.auprc(probability, y) is None


def evidence(logits: np.ndarray) -> np.ndarray:
    """Log-odds of every class, from probabilities of long double precision."""
    probability = scipy_softmax(logits.astype(np.longdouble), axis=1)
    return np.log(probability / (1 - probability)).astype(np.float64)


def test_core_and_shortcut_auc_against_sklearn():
    logits, y, group = predictions()
    colour, odds = group % 2, evidence(logits)[:, 1]
    p = Predictions(logits, y, group, NAMES, (0.4, 0.1, 0.1, 0.4))
    core = [roc_auc_score(y[colour == a], odds[colour == a]) for a in (0, 1)]
    follows = [roc_auc_score(colour[y == c], odds[y == c]) for c in (0, 1)]
    close(metrics.core_auc(p).value, np.mean(core))
    close(metrics.shortcut_auc(p).value, np.mean(follows))
    against = dataclasses.replace(p, group_share=(0.1, 0.4, 0.4, 0.1))  # colour 1 goes with class 0
    close(metrics.shortcut_auc(against).value, 1 - np.mean(follows))
    close(metrics.core_auc(against).value, np.mean(core))


def test_core_and_shortcut_auc_of_three_classes_against_sklearn():
    logits, y, group = predictions(3)
    names, score, colour = tuple(f"g{i}" for i in range(6)), evidence(logits), group % 2
    p = Predictions(logits, y, group, names, (0.3, 0.1, 0.1, 0.1, 0.1, 0.3))  # colour 0 with class 0, 1 with class 2
    core = [roc_auc_score(y[colour == a] == c, score[colour == a, c]) for a in (0, 1) for c in range(3)]
    follows = [
        roc_auc_score(colour[y == c] == a, score[y == c, goes]) for c in range(3) for a, goes in ((0, 0), (1, 2))
    ]
    close(metrics.core_auc(p).value, np.mean(core))
    close(metrics.shortcut_auc(p).value, np.mean(follows))


def test_shortcut_auc_says_in_which_direction_the_shortcut_is_followed():
    y, colour = np.repeat([0, 1, 0, 1], 50), np.repeat([0, 0, 1, 1], 50)
    noise = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    p = Predictions(noise, y, 2 * y + colour, NAMES, (0.5, 0.0, 0.0, 0.5))
    as_trained = dataclasses.replace(p, logits=noise + 100 * np.eye(2, dtype=np.float32)[colour])
    reversed_ = dataclasses.replace(p, logits=noise + 100 * np.eye(2, dtype=np.float32)[1 - colour])
    knows = dataclasses.replace(p, logits=noise + 100 * np.eye(2, dtype=np.float32)[y])
    assert [metrics.shortcut_auc(case).value for case in (as_trained, reversed_)] == [1, 0]
    assert metrics.core_auc(knows).value == 1
    for level in (metrics.shortcut_auc(knows), metrics.core_auc(as_trained), metrics.core_auc(p)):
        assert abs(level.value - 0.5) < 0.1


@pytest.mark.parametrize("majority", [{(0, 0), (1, 1)}, {(0, 1), (1, 0)}])
def test_balanced_training_leaves_the_direction_to_the_data(majority):
    logits, y, group = predictions()
    balanced = Predictions(logits, y, group, NAMES, (0.3, 0.3, 0.2, 0.2))
    assert metrics.shortcut_auc(balanced) is None
    told = dataclasses.replace(balanced, majority=frozenset(majority))
    share = (0.4, 0.1, 0.1, 0.4) if (0, 0) in majority else (0.1, 0.4, 0.4, 0.1)
    close(metrics.shortcut_auc(told).value, metrics.shortcut_auc(dataclasses.replace(told, group_share=share)).value)


def test_a_rare_class_still_goes_with_the_value_that_it_prefers():
    """Both colours are mostly of class 0, and yet colour 0 goes with class 1."""
    logits, y, group = predictions()
    p = Predictions(logits, y, group, NAMES, (0.44, 0.41, 0.14, 0.01))
    assert metrics.class_of_value(p) == {0: 1, 1: 0}


def test_a_value_that_no_cell_of_the_majority_has_goes_with_no_class():
    """Two shortcuts may contradict each other: value 1 is neither of class 0 nor of class 1."""
    logits, y, _ = predictions()
    value = np.random.default_rng(1).integers(0, 3, len(y))
    names = tuple(f"g{i}" for i in range(6))
    p = Predictions(logits, y, 3 * y + value, names, (0.3, 0.11, 0.1, 0.1, 0.09, 0.3), frozenset({(0, 0), (1, 2)}))
    assert metrics.class_of_value(p) == {0: 0, 2: 1}
    odds, told = evidence(logits)[:, 1], value != 1
    follows = [roc_auc_score(value[told & (y == c)] == 2, odds[told & (y == c)]) for c in (0, 1)]
    close(metrics.shortcut_auc(p).value, np.mean(follows))
    assert metrics.class_of_value(dataclasses.replace(p, majority=frozenset())) == {0: 0, 1: 0, 2: 1}


def test_sure_predictions_are_told_apart():
    """Probabilities of 1 - 1e-40 are all 1, and their evidence is not."""
    logits = np.array([[0, 100], [0, 200], [0, 300], [0, 400]], dtype=np.float32)
    y, group = np.array([0, 1, 0, 1]), np.array([0, 2, 1, 3])
    assert metrics.core_auc(Predictions(logits, y, group, NAMES, (0.5, 0.0, 0.0, 0.5))).value == 1


def test_an_empty_cell_leaves_no_auc_and_an_absent_value_is_left_out():
    logits, y, group = predictions()
    share = (0.5, 0.0, 0.0, 0.5)
    keep = group != 2
    found = split_metrics(Predictions(logits[keep], y[keep], group[keep], NAMES, share), resamples=20)
    assert found["core_auc"] is found["shortcut_auc"] is None
    assert found["intervals"]["core_auc"] is found["intervals"]["shortcut_auc"] is None
    keep = group % 2 == 0
    one = Predictions(logits[keep], y[keep], group[keep], NAMES, share)
    close(metrics.core_auc(one).value, roc_auc_score(y[keep], evidence(logits[keep])[:, 1]))
    assert metrics.shortcut_auc(one) is None


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("auc", [metrics.core_auc, metrics.shortcut_auc])
def test_the_interval_of_an_auc_against_resampling(auc, num_classes):
    logits, y, group = predictions(num_classes, n=900)
    names = tuple(f"g{i}" for i in range(2 * num_classes))
    share = (0.3, 0.1) + (0.1, 0.3) * (num_classes - 1)
    p = Predictions(logits, y, group, names, share)
    random = np.random.default_rng(0)
    draws = []
    for _ in range(400):
        i = random.integers(len(y), size=len(y))
        draws.append(auc(Predictions(logits[i], y[i], group[i], names, share)).value)
    low, high = metrics.auc_interval(auc(p))
    assert (high - low) / 2 == pytest.approx(1.96 * np.std(draws), rel=0.15)
    assert low < auc(p).value < high


def test_bootstrap_is_seeded():
    logits, y, group = predictions()
    correct = logits.argmax(1) == y
    assert bootstrap_intervals(correct, y, group) == bootstrap_intervals(correct, y, group)


def proportion(right: int, n: int) -> tuple[float, float]:
    found = stats.binomtest(right, n).proportion_ci(method="wilson")
    return found.low, found.high


def test_no_interval_is_certain_where_all_or_none_are_right():
    """Resamples of samples that are all right are all right. The interval is then that of a share: Wilson's."""
    y, group = np.repeat([0, 1], 16), np.repeat([0, 1, 2, 3], (11, 5, 9, 7))
    right, wrong = (bootstrap_intervals(np.full(32, value), y, group, resamples=50) for value in (True, False))
    close(right["average"], proportion(32, 32), atol=1e-9)
    close(wrong["average"], proportion(0, 32), atol=1e-9)
    lower = 1 - proportion(16, 16)[0]
    close(right["class_balanced"], [1 - np.hypot(lower, lower) / 2, 1], atol=1e-9)
    close(wrong["class_balanced"], [0, np.hypot(lower, lower) / 2], atol=1e-9)
    close(right["worst_group"], [proportion(5, 5)[0], 1], atol=1e-9)  # the smallest group is known least
    close(wrong["worst_group"], [0, proportion(0, 11)[1]], atol=1e-9)  # and none is better than the largest may be
    close(bootstrap_intervals(group != 3, y, group)["worst_group"], proportion(0, 7), atol=1e-9)
    of_class = bootstrap_intervals(y == 0, y, None)["class_balanced"]
    close(of_class, [0.5 - lower / 2, 0.5 + lower / 2], atol=1e-9)


@pytest.mark.parametrize("auc", [metrics.core_auc, metrics.shortcut_auc])
def test_no_interval_of_an_auc_is_certain_where_all_are_ranked_alike(auc):
    """It has the variance of one sample more in each group that is ranked wrong, beside one that is ranked right."""
    y, attribute = np.repeat([0, 1], 20), np.tile([0, 1, 1, 1], 10)
    logits = np.zeros((40, 2), np.float32)
    logits[:, 1] = 10.0 * y + attribute
    found = auc(Predictions(logits, y, 2 * y + attribute, NAMES, (0.4, 0.1, 0.1, 0.4)))
    assert found.value == 1.0
    assert not found.influence.any()
    sizes = np.array([5, 15, 5, 15])  # each group is in one of two AUCs
    close(metrics.auc_interval(found), [1 - 1.96 * np.sqrt((1 / (2 * (sizes + 2)) ** 2).sum()), 1])


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


SELECTIONS = ("last", "val_average", "val_class_balanced", "val_worst_group", "val_core_auc")


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
    with pytest.raises(ConfigError, match=r"has no sample in val, so label and attribute cannot be told apart there"):
        check_selection("val_core_auc", data)


def test_criterion_reads_its_metric():
    found = {"average": 0.9, "class_balanced": 0.8, "worst_group": 0.1, "core_auc": 0.7}
    assert [criterion(s, found) for s in SELECTIONS[1:]] == [0.9, 0.8, 0.1, 0.7]
