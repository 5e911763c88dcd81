"""Compute the metrics of one split from logits, labels and groups, as result.json holds them.

A metric is a fraction, never percent. It is None where it does not exist: an empty group has no accuracy, and data of
one class has no AUROC. `METRICS`, at the end, lists all of them. To add one, add its function and its entry here:
result.json, tables, `sitar compare --metric` and `train.selection` read the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Predictions:
    """Predictions hold all that a metric may know of a split: logits, labels, and groups where they are known.

    A group is a (label, attribute) cell, numbered label * num_attribute_values + attribute. `group_share` is each
    group's share of the training split. `majority` are the (label, attribute) cells that follow the shortcut, where the
    data says so.
    """

    logits: Float[np.ndarray, "sample classes"]
    y: Int[np.ndarray, " sample"]
    group: Int[np.ndarray, " sample"] | None = None
    group_names: Sequence[str] = ()
    group_share: Sequence[float] | None = None
    majority: frozenset[tuple[int, int]] = frozenset()

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]

    @property
    def num_attribute_values(self) -> int:
        """Return how many values the attribute has. It is 0 where there are no groups."""
        return len(self.group_names) // self.num_classes

    @cached_property
    def attribute(self) -> Int[np.ndarray, " sample"] | None:
        """Return the attribute of each sample. It is None where there are no groups."""
        return None if self.group is None else self.group - self.y * self.num_attribute_values

    @cached_property
    def probability(self) -> Float[np.ndarray, "sample classes"]:
        return softmax(self.logits)

    @cached_property
    def correct(self) -> Bool[np.ndarray, " sample"]:
        """Return whether each sample is classified correctly."""
        return self.logits.argmax(1) == self.y

    @cached_property
    def evidence(self) -> Float[np.ndarray, "sample classes"]:
        """Return the log-odds of every class. Unlike a probability it still tells very sure predictions apart."""
        logits = self.logits.astype(np.float64)
        return logits - np.stack([_log_sum_exp(np.delete(logits, c, 1)) for c in range(self.num_classes)], 1)

    @cached_property
    def groups(self) -> list[tuple[int, float | None]]:
        """Return the size and the accuracy of each group. The list is empty where there are no groups."""
        return [] if self.group is None else group_accuracies(self.correct, self.group, len(self.group_names))


@dataclass(frozen=True)
class Metric:
    """A metric is one number that says how good predictions are, and what other parts must know of it."""

    name: str  # in result.json and on the command line
    title: str  # in a table
    short: str  # in a table of many columns
    of: Callable[[Predictions], float | None]
    higher_is_better: bool = True
    ideal: float | None = None  # the best value where it is neither the highest nor the lowest
    chance: Callable[[int], float] | None = None  # what knowing nothing gives, for a number of classes; None: no number
    needs_groups: bool = False
    needs_probabilities: bool = False  # predicted classes alone do not have it
    selects: bool = False  # whether `train.selection: val_<name>` may choose an epoch by it
    absent_group: str | None = None  # why an epoch cannot be chosen by it where a group has no sample; None: it can


def split_metrics(predictions: Predictions, resamples: int = 1000) -> dict[str, Any]:
    """Return everything that result.json says of a split. `resamples` = 0 leaves the bootstrap intervals out."""
    groups = zip(predictions.group_names, predictions.groups, strict=True) if predictions.groups else ()
    metrics: dict[str, Any] = {
        "n": len(predictions.y),
        **{metric.name: metric.of(predictions) for metric in METRICS.values()},
        "groups": {name: {"n": n, "accuracy": accuracy} for name, (n, accuracy) in groups},
    }
    if resamples:
        metrics["intervals"] = bootstrap_intervals(
            predictions.correct, predictions.y, predictions.group, resamples=resamples
        ) | {name: auc_interval(auc(predictions)) for name, auc in _AUCS.items()}
    return metrics


def softmax(logits: Float[np.ndarray, "sample classes"]) -> Float[np.ndarray, "sample classes"]:
    """Return the class probabilities of logits, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def group_accuracies(
    correct: Bool[np.ndarray, " sample"], group: Int[np.ndarray, " sample"], num_groups: int
) -> list[tuple[int, float | None]]:
    """Return the size and the accuracy of each group. An empty group has no accuracy."""
    sizes = np.bincount(group, minlength=num_groups)
    hits = np.bincount(group, weights=correct, minlength=num_groups)
    return [(int(n), float(hit / n) if n else None) for n, hit in zip(sizes, hits, strict=True)]


def average(correct: Bool[np.ndarray, " sample"]) -> float | None:
    """Return the accuracy over all samples."""
    return float(correct.mean()) if len(correct) else None


def worst_group(groups: Sequence[tuple[int, float | None]]) -> float | None:
    """Return the lowest accuracy of the groups that are not empty."""
    return min((accuracy for _, accuracy in groups if accuracy is not None), default=None)


def adjusted_average(groups: Sequence[tuple[int, float | None]], share: Sequence[float] | None) -> float | None:
    """Return the mean of the group accuracies, weighted by the groups' shares of the training split.

    It does not exist when a group of the training split is empty here: the weighted mean would then leave it out.
    """
    if share is None or not groups:
        return None
    pairs = [(s, accuracy) for s, (_, accuracy) in zip(share, groups, strict=True) if s > 0]
    if not pairs or any(accuracy is None for _, accuracy in pairs):
        return None
    return float(sum(s * accuracy for s, accuracy in pairs if accuracy is not None) / sum(s for s, _ in pairs))


def class_balanced(correct: Bool[np.ndarray, " sample"], y: Int[np.ndarray, " sample"]) -> float | None:
    """Return the mean of the accuracies of the classes that occur."""
    classes = np.unique(y)
    return float(np.mean([correct[y == c].mean() for c in classes])) if len(classes) else None


def calibration_error(
    probability: Float[np.ndarray, "sample classes"], correct: Bool[np.ndarray, " sample"]
) -> float | None:
    """Return the expected calibration error of the predicted class, with 15 bins of equal width (Guo et al., 2017)."""
    if not len(correct):
        return None
    confidence = probability.max(1)
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gap = np.bincount(bins, weights=confidence - correct, minlength=CALIBRATION_BINS)
    return float(np.abs(gap).sum() / len(correct))


def auroc(probability: Float[np.ndarray, "sample classes"], y: Int[np.ndarray, " sample"]) -> float | None:
    """Return the area under the ROC curve. More than two classes: see `_against_the_rest`."""

    def area(score: np.ndarray, positive: np.ndarray) -> float:
        auc = _auc(score, positive, ~positive)
        return math.nan if auc is None else auc.value

    return _against_the_rest(area, probability, y)


def auprc(probability: Float[np.ndarray, "sample classes"], y: Int[np.ndarray, " sample"]) -> float | None:
    """Return the area under the precision-recall curve. More than two classes: see `_against_the_rest`."""
    return _against_the_rest(average_precision, probability, y)


def average_precision(score: Float[np.ndarray, " sample"], positive: Bool[np.ndarray, " sample"]) -> float:
    """Return the mean precision at the rank of each positive sample. Samples of one score have one rank, the last."""
    order = np.argsort(-score, kind="stable")
    found = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))  # sample of each score
    return float((np.diff(found[last], prepend=0) * found[last] / (last + 1)).sum() / positive.sum())


def _against_the_rest(
    measure: Callable[[np.ndarray, np.ndarray], float],
    probability: Float[np.ndarray, "sample classes"],
    y: Int[np.ndarray, " sample"],
) -> float | None:
    """Return the measure of class 1 for two classes. For more, return the mean of each class against the rest.

    The measure does not exist unless every class occurs, nor where a probability is not a number.
    """
    num_classes = probability.shape[1]
    if len(np.unique(y)) < num_classes or np.isnan(probability).any():
        return None
    classes = [1] if num_classes == 2 else range(num_classes)
    return float(np.mean([measure(probability[:, c], y == c) for c in classes]))


@dataclass(frozen=True)
class AUC:
    """An AUC, or a mean of several, with the influence of each sample on it: how far the sample moves the value.

    `unseen` is the variance that one sample more in each group would bring, if it were ranked wrong. It stands in where
    all samples seen are ranked alike, so that none of them moves the value.
    """

    value: float
    influence: Float[np.ndarray, " sample"]
    reach: Float[np.ndarray, " sample"]  # how far one sample more like this one would move the value
    unseen: float = 0.0


def core_auc(p: Predictions) -> AUC | None:
    """Return how well the evidence ranks the label where the attribute is the same: 1 is perfect, 0.5 is chance.

    It is the mean, over the values of the attribute, of the AUC of the label among the samples of that value. With more
    than two classes it is the mean of each class against the rest. It does not exist where a value lacks a class, nor
    where a logit is not finite.
    """
    if p.attribute is None or p.group is None or not np.isfinite(p.logits).all():
        return None
    terms = [
        _auc(p.evidence[:, c], (p.attribute == value) & (p.y == c), (p.attribute == value) & (p.y != c))
        for value in np.unique(p.attribute)
        for c in range(p.num_classes)
    ]
    return _mean_auc(terms, p.group)


def shortcut_auc(p: Predictions) -> AUC | None:
    """Return how well the evidence tells the attribute where the label is the same.

    Each value of the attribute goes with one class in training (`class_of_value`). Among the samples of a class, the
    evidence for the class of a value should say nothing of the value: 0.5. More means that the shortcut is followed as
    in training, and less that it is followed the other way round. It is the mean over classes and over values, each
    value against the rest. It does not exist where a class lacks a value, nor where a logit is not finite.
    """
    goes_with = class_of_value(p)
    if p.attribute is None or p.group is None or goes_with is None or not np.isfinite(p.logits).all():
        return None
    values = [value for value in np.unique(p.attribute) if value in goes_with]
    known = np.isin(p.attribute, values)
    terms = [
        _auc(
            p.evidence[:, goes_with[value]],
            (p.y == c) & (p.attribute == value),
            known & (p.y == c) & (p.attribute != value),
        )
        for c in np.unique(p.y)
        for value in values
    ]
    return _mean_auc(terms, p.group)


def class_of_value(p: Predictions) -> dict[int, int] | None:
    """Return the class that each value of the attribute goes with in training.

    It is the class in which the value has the largest share. Where all classes have the same shares, nothing goes with
    anything in training, and the cells that follow the shortcut decide. It is None where these are not known either.
    Where they are known, a value that has no such cell goes with no class.
    """
    if p.group_share is None or not p.num_attribute_values:
        return None
    share = np.array(p.group_share).reshape(p.num_classes, p.num_attribute_values)
    classes = share.sum(1) > 0
    within = np.where(classes[:, None], share / np.where(classes, share.sum(1), 1)[:, None], -1)
    if np.allclose(within[classes], within[classes][:1]):
        return {value: label for label, value in p.majority} or None
    following = {value for _, value in p.majority} or set(range(p.num_attribute_values))
    seen = np.flatnonzero(share.sum(0) > 0).tolist()
    return {value: int(within[:, value].argmax()) for value in seen if value in following}


def auc_interval(auc: AUC | None, z: float = 1.96) -> list[float] | None:
    """Return the 95 % interval of an AUC, by the variance of DeLong et al. (1988): the sum of squared influences.

    Where this is 0, the variance is that of a sample more in each group.
    """
    if auc is None:
        return None
    half = z * float(np.sqrt((auc.influence**2).sum() or auc.unseen))
    return [max(0.0, auc.value - half), min(1.0, auc.value + half)]


def _auc(
    score: Float[np.ndarray, " sample"], high: Bool[np.ndarray, " sample"], low: Bool[np.ndarray, " sample"]
) -> AUC | None:
    """Return the share of pairs in which the sample of `high` has the higher score. A tie counts half."""
    if not high.any() or not low.any():
        return None

    def share_below(of: np.ndarray, among: np.ndarray) -> np.ndarray:
        among, order = np.sort(among), of.argsort()
        of, share = of[order], np.empty(len(of))  # in order: the search then reads memory from front to back
        share[order] = (np.searchsorted(among, of, "left") + np.searchsorted(among, of, "right")) / (2 * len(among))
        return share

    above = share_below(score[high], score[low])
    value = float(above.mean())
    influence, reach = np.zeros(len(score)), np.zeros(len(score))
    influence[high] = (above - value) / high.sum()
    influence[low] = (1 - share_below(score[low], score[high]) - value) / low.sum()
    reach[high], reach[low] = 1 / (high.sum() + 2), 1 / (low.sum() + 2)  # two more, of which the other is ranked right
    return AUC(value, influence, reach)


def _mean_auc(terms: Sequence[AUC | None], group: Int[np.ndarray, " sample"]) -> AUC | None:
    """Return the mean of AUCs of the same samples. It does not exist where one of them does not."""
    known = [term for term in terms if term is not None]
    if not known or len(known) < len(terms):
        return None
    value = float(np.mean([t.value for t in known]))
    influence, reach = (np.mean([getattr(t, name) for t in known], axis=0) for name in ("influence", "reach"))
    _, of_group = np.unique(group, return_index=True)
    return AUC(value, influence, reach, float((reach[of_group] ** 2).sum()))


def _log_sum_exp(logits: Float[np.ndarray, "sample classes"]) -> Float[np.ndarray, " sample"]:
    highest = logits.max(1, keepdims=True)
    return (highest + np.log(np.exp(logits - highest).sum(1, keepdims=True)))[:, 0]


def f1(probability: Float[np.ndarray, "sample classes"], y: Int[np.ndarray, " sample"]) -> float | None:
    """Return F1 of class 1 for two classes. For more, return the mean F1 of each class against the rest.

    A class that neither occurs nor is predicted has 0.
    """
    if not len(y):
        return None
    num_classes, predicted = probability.shape[1], probability.argmax(1)
    hits = np.bincount(y[predicted == y], minlength=num_classes)
    both = np.bincount(y, minlength=num_classes) + np.bincount(predicted, minlength=num_classes)
    scores = 2 * hits / np.maximum(both, 1)
    return float(scores[1] if num_classes == 2 else scores.mean())


def bootstrap_intervals(
    correct: Bool[np.ndarray, " sample"],
    y: Int[np.ndarray, " sample"],
    group: Int[np.ndarray, " sample"] | None,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, list[float] | None]:
    """Return percentile intervals of average, class-balanced and worst-group accuracy over resamples of the samples.

    Accuracy depends only on how many samples fall into each (class, group, right or wrong) cell. The counts of the
    cells are therefore drawn from a multinomial, which is the same distribution as drawing samples with replacement.
    The draws have a fixed seed. With many small groups the worst group of a resample is biased downwards, so that the
    interval lies below the point estimate. Where all resamples are the same, as they are at 0 and 1, the interval is
    Wilson's. Those of several classes are combined as in Zou and Donner's MOVER.
    """
    if not len(y):
        return {"average": None, "class_balanced": None, "worst_group": None}
    cell_group = np.zeros_like(y) if group is None else group
    groups = int(cell_group.max()) + 1
    sizes = np.bincount((y * groups + cell_group) * 2 + correct)
    present = np.flatnonzero(sizes)
    cells, counts = np.stack([present // 2 // groups, present // 2 % groups, present % 2]), sizes[present]
    draws = np.random.default_rng(0).multinomial(len(y), counts / len(y), size=resamples)
    right = draws * cells[2]

    def accuracies(of: np.ndarray) -> np.ndarray:
        members = of[:, None] == np.unique(of)
        with np.errstate(invalid="ignore"):
            return (right @ members) / (draws @ members)  # (resample, value); NaN where a value was not drawn

    def interval(values: np.ndarray, certain: tuple[float, float]) -> list[float]:
        tail = (1 - level) / 2
        low, high = np.quantile(values, [tail, 1 - tail])
        return [float(end) for end in ((low, high) if low < high else certain)]

    def wilsons(of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        members, z = of[:, None] == np.unique(of), NormalDist().inv_cdf((1 + level) / 2)
        n = counts @ members
        share = (counts * cells[2]) @ members / n
        low, high = np.transpose([wilson(*one, z) for one in zip(share.tolist(), n.tolist(), strict=True)])
        return share, low, high

    def mean_interval(of: np.ndarray) -> tuple[float, float]:
        share, low, high = wilsons(of)
        below, above = (math.hypot(*(share - end)) / len(share) for end in (low, high))
        return max(0.0, share.mean() - below), min(1.0, share.mean() + above)

    def lowest_interval(of: np.ndarray) -> tuple[float, float]:
        _, low, high = wilsons(of)
        return low.min(), high.min()

    worst = None if group is None else interval(np.nanmin(accuracies(cells[1]), axis=1), lowest_interval(cells[1]))
    return {
        "average": interval(right.sum(1) / len(y), mean_interval(np.zeros_like(cells[0]))),
        "class_balanced": interval(np.nanmean(accuracies(cells[0]), axis=1), mean_interval(cells[0])),
        "worst_group": worst,
    }


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Compute Wilson's interval of a share of n samples. It is of 95 % unless `z` says otherwise."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


_AUCS: dict[str, Callable[[Predictions], AUC | None]] = {"core_auc": core_auc, "shortcut_auc": shortcut_auc}


def _value(auc: AUC | None) -> float | None:
    return None if auc is None else auc.value


def _coin(classes: int) -> float:
    """Return the expected accuracy of a fair coin over the classes. It is the same in every class and every group."""
    return 1 / classes


def _any_order(classes: int) -> float:
    """Return the expected AUC of scores in any order."""
    return 0.5


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("average", "average", "average", lambda p: average(p.correct), chance=_coin, selects=True),
        Metric(
            "adjusted_average",
            "adjusted average",
            "adjusted",
            lambda p: adjusted_average(p.groups, p.group_share),
            chance=_coin,
            needs_groups=True,
        ),
        Metric(
            "class_balanced",
            "class balanced",
            "balanced",
            lambda p: class_balanced(p.correct, p.y),
            chance=_coin,
            selects=True,
        ),
        Metric(
            "worst_group",
            "worst group",
            "worst",
            lambda p: worst_group(p.groups),
            chance=_coin,
            needs_groups=True,
            selects=True,
            absent_group="the worst group there is not the worst group",
        ),
        Metric(
            "core_auc",
            "core AUC",
            "core",
            lambda p: _value(core_auc(p)),
            chance=_any_order,
            needs_groups=True,
            needs_probabilities=True,
            selects=True,
            absent_group="label and attribute cannot be told apart there",
        ),
        Metric(
            "shortcut_auc",
            "shortcut AUC",
            "shortcut",
            lambda p: _value(shortcut_auc(p)),
            higher_is_better=False,
            ideal=0.5,
            chance=_any_order,
            needs_groups=True,
            needs_probabilities=True,
        ),
        Metric(
            "calibration_error",
            "calibration error",
            "calibration",
            lambda p: calibration_error(p.probability, p.correct),
            higher_is_better=False,
            needs_probabilities=True,
        ),
        Metric(
            "auroc",
            "AUROC",
            "auroc",
            lambda p: auroc(p.probability, p.y),
            chance=_any_order,
            needs_probabilities=True,
        ),
        Metric("auprc", "AUPRC", "auprc", lambda p: auprc(p.probability, p.y), needs_probabilities=True),
        Metric("f1", "F1", "f1", lambda p: f1(p.probability, p.y)),
    )
}
"""This table holds all metrics by name, in the order of result.json."""
