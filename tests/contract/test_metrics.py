"""What every metric promises. A new metric is covered by being in the table."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from helpers.referees import predictions
from sitar.config import TrainConfig, run_config, selections
from sitar.data.types import Data, EvalSplit, TrainSplit
from sitar.errors import ConfigError
from sitar.evaluation.metrics import METRICS, Metric, Predictions, split_metrics
from sitar.evaluation.selection import check_selection, criterion, selection_metric, watched_metrics
from sitar.registry import metrics
from sitar.reporting.tables.splits import details_table
from sitar.reporting.tables.table import HEADLINE

EVERY = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
SELECTING = [metric for metric in METRICS.values() if metric.selects]
CLASSES = pytest.mark.parametrize("classes", [2, 3])


def made(classes: int = 2, *, groups: bool = True, n: int = 400) -> Predictions:
    """Predictions of which some are wrong, with two values of an attribute."""
    logits, y, group = predictions(classes, n)
    if not groups:
        return Predictions(logits, y)
    names = tuple(f"label={label},color={value}" for label in range(classes) for value in (0, 1))
    share = np.array([2, 1] + [1, 2] * (classes - 1)) / (3 * classes)  # value 0 goes with class 0, value 1 with class 1
    return Predictions(logits, y, group, names, tuple(share))


def taken(p: Predictions, order: np.ndarray) -> Predictions:
    """The samples at `order`."""
    return dataclasses.replace(
        p, logits=p.logits[order], y=p.y[order], group=None if p.group is None else p.group[order]
    )


def perfect(p: Predictions) -> Predictions:
    return dataclasses.replace(p, logits=100 * np.eye(p.num_classes, dtype=np.float32)[p.y])


@EVERY
def test_an_entry_is_complete(metric: Metric) -> None:
    assert METRICS[metric.name] is metric
    assert metric.title
    assert metric.short
    assert metric.absent_group is None or (metric.needs_groups and metric.selects)


@EVERY
@CLASSES
def test_a_value_is_a_fraction(metric: Metric, classes: int) -> None:
    value = metric.of(made(classes))
    assert type(value) is float
    assert 0 < value < 1
    assert json.loads(json.dumps(value, allow_nan=False)) == value


@EVERY
@CLASSES
def test_the_order_of_samples_does_not_matter(metric: Metric, classes: int) -> None:
    p = made(classes)
    value = metric.of(taken(p, np.random.default_rng(3).permutation(len(p.y))))
    assert value == pytest.approx(metric.of(p), abs=1e-12)


@EVERY
@CLASSES
def test_perfect_predictions_have_the_best_value(metric: Metric, classes: int) -> None:
    p = made(classes)
    best, value = metric.of(perfect(p)), metric.of(p)
    assert value is not None
    if metric.ideal is not None:
        assert best == metric.ideal != value
        return
    assert best == (1.0 if metric.higher_is_better else 0.0)
    assert (best > value) == metric.higher_is_better


@EVERY
def test_a_metric_that_needs_groups_does_not_exist_without(metric: Metric) -> None:
    assert (metric.of(made(groups=False)) is None) == metric.needs_groups


@EVERY
@CLASSES
def test_nothing_has_no_metric(metric: Metric, classes: int) -> None:
    assert metric.of(taken(made(classes), np.zeros(0, dtype=np.int64))) is None


@EVERY
def test_one_class_is_a_value_or_none(metric: Metric) -> None:
    p = made()
    value = metric.of(taken(p, np.flatnonzero(p.y == 1)))
    assert value is None or 0 <= value <= 1


def test_a_split_has_every_metric_in_order() -> None:
    assert list(split_metrics(made(), 0)) == ["n", *METRICS, "groups"]
    assert metrics() is METRICS


def test_tables_show_every_metric() -> None:
    table = details_table("details", {"val": split_metrics(made(), 0)})
    shown = {metric.title for metric in METRICS.values() if metric.name not in HEADLINE}
    assert set(table.columns) == {"split", *shown}
    assert len(table.rows[0]) == len(table.columns)


def test_the_attribute_of_a_sample_is_found_in_its_group() -> None:
    p = made(3)
    assert p.num_attribute_values == 2
    assert np.array_equal(p.attribute, p.group % 2)
    assert np.array_equal(p.group, p.y * 2 + p.attribute)
    assert made(groups=False).attribute is None
    assert made(groups=False).num_attribute_values == 0


def data_with(p: Predictions) -> Data:
    y = torch.from_numpy(p.y)
    group = None if p.group is None else torch.from_numpy(p.group)
    val = EvalSplit(torch.zeros(len(y), 1), y, group, tuple(p.group_names), p.group_share)
    return Data(TrainSplit(val.x, y), {"val": val}, ("a", "b"), "made")


def refusal(selection: str, data: Data) -> str | None:
    try:
        check_selection(selection, data)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("metric", SELECTING, ids=lambda metric: metric.name)
def test_a_metric_that_selects_has_a_value_wherever_it_is_let(metric: Metric) -> None:
    p = made()
    single = taken(p, np.flatnonzero(p.y == 1))
    without_a_group = taken(p, np.flatnonzero(p.group != 2))
    for case in (p, made(groups=False), single, without_a_group):
        reason = refusal(f"val_{metric.name}", data_with(case))
        if reason is None:
            assert np.isfinite(criterion(f"val_{metric.name}", watched_metrics(case)))
        else:
            assert reason.startswith(f"train.selection 'val_{metric.name}' ")
            assert "Use 'last'" in reason
    assert refusal(f"val_{metric.name}", data_with(p)) is None


def test_rules_of_selection_are_the_metrics_that_select() -> None:
    assert selections() == ["last", *(f"val_{metric.name}" for metric in SELECTING)]
    assert [selection_metric(rule) for rule in selections()[1:]] == SELECTING
    assert list(watched_metrics(made())) == [metric.name for metric in SELECTING]


@EVERY
@CLASSES
def test_chance_is_what_a_coin_has(metric: Metric, classes: int) -> None:
    """Ten coins over 4,000 samples have the value that the table calls chance."""
    if metric.chance is None:
        return
    p = made(classes, n=4000)
    values = [
        metric.of(dataclasses.replace(p, logits=np.random.default_rng(i).normal(size=p.logits.shape)))
        for i in range(10)
    ]
    least = 0.05 if metric.name == "worst_group" else 0.01  # the worst of several coins is a little worse
    assert np.mean(values) == pytest.approx(metric.chance(classes), abs=least)


def attribute_auc(p: Predictions) -> float | None:
    """How well class 1's probability tells the attribute; better predictions have less of it."""
    if p.attribute is None or len(set(p.attribute)) < 2:
        return None
    return float(roc_auc_score(p.attribute, p.probability[:, 1]))


def test_a_metric_that_is_added_reaches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry: result.json, tables, the rules of selection and their messages."""
    added = Metric(
        "attribute_auc",
        "attribute AUC",
        "attribute",
        attribute_auc,
        higher_is_better=False,
        needs_groups=True,
        selects=True,
    )
    monkeypatch.setitem(METRICS, added.name, added)
    p = made()
    figures = split_metrics(p, 0)
    assert figures["attribute_auc"] == attribute_auc(p)
    table = details_table("details", {"val": figures})
    assert table.columns[-2:] == ["calibration error", "attribute AUC"]  # errors last
    raw = {"data": {"name": "color_mnist"}, "method": {"name": "erm"}}
    assert run_config({**raw, "train": {"selection": "val_attribute_auc"}}).train.selection == "val_attribute_auc"
    check_selection("val_attribute_auc", data_with(p))
    assert criterion("val_attribute_auc", figures) == -figures["attribute_auc"]
    assert criterion("val_attribute_auc", {"attribute_auc": None}) < -1  # worse than any epoch that has a value
    with pytest.raises(ConfigError, match="'val_attribute_auc' needs groups, and val has none"):
        check_selection("val_attribute_auc", data_with(made(groups=False)))


def test_a_misspelt_rule_is_refused_with_a_hint() -> None:
    raw = {"data": {"name": "color_mnist"}, "method": {"name": "erm"}, "train": {"selection": "val_worst_grup"}}
    with pytest.raises(ConfigError) as caught:
        run_config(raw)
    assert str(caught.value) == (
        "train.selection = 'val_worst_grup' is not allowed: did you mean 'val_worst_group'? Allowed are last, "
        "val_average, val_class_balanced, val_worst_group, val_core_auc."
    )
    assert TrainConfig().selection == "last"
