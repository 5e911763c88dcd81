"""Metrics of one split from logits, labels and groups, as result.json holds them.

Fractions, never percent. None where a figure does not exist: an empty group has no accuracy, one class has no AUROC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

CALIBRATION_BINS = 15


def split_metrics(
    logits: Float[np.ndarray, "sample classes"],
    y: Int[np.ndarray, " sample"],
    group: Int[np.ndarray, " sample"] | None = None,
    group_names: Sequence[str] = (),
    group_share: Sequence[float] | None = None,
    resamples: int = 1000,
) -> dict[str, Any]:
    """Everything that result.json says of a split. `resamples` = 0 leaves the bootstrap intervals out."""
    correct = logits.argmax(1) == y
    probability = softmax(logits)
    groups = group_accuracies(correct, group, len(group_names)) if group is not None else []
    metrics: dict[str, Any] = {
        "n": len(y),
        "average": _number(correct.mean()) if len(y) else None,
        "adjusted_average": adjusted_average(groups, group_share),
        "class_balanced": class_balanced(correct, y),
        "worst_group": worst_group(groups),
        "calibration_error": calibration_error(probability, correct),
        **ranking_metrics(probability, y),
        "groups": {
            name: {"n": n, "accuracy": accuracy} for name, (n, accuracy) in zip(group_names, groups, strict=True)
        },
    }
    if resamples:
        metrics["intervals"] = bootstrap_intervals(correct, y, group, resamples=resamples)
    return metrics


def softmax(logits: Float[np.ndarray, "sample classes"]) -> Float[np.ndarray, "sample classes"]:
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def group_accuracies(
    correct: Bool[np.ndarray, " sample"], group: Int[np.ndarray, " sample"], num_groups: int
) -> list[tuple[int, float | None]]:
    """Size and accuracy of each group; None for an empty one."""
    sizes = np.bincount(group, minlength=num_groups)
    hits = np.bincount(group, weights=correct, minlength=num_groups)
    return [(int(n), _number(hit / n) if n else None) for n, hit in zip(sizes, hits, strict=True)]


def worst_group(groups: Sequence[tuple[int, float | None]]) -> float | None:
    """Lowest accuracy of the groups that are not empty."""
    return min((accuracy for _, accuracy in groups if accuracy is not None), default=None)


def adjusted_average(groups: Sequence[tuple[int, float | None]], share: Sequence[float] | None) -> float | None:
    """Group accuracies weighted by the groups' shares of the training split.

    None when a group of the training split is empty here: the weighted mean would then leave it out.
    """
    if share is None or not groups:
        return None
    pairs = [(s, accuracy) for s, (_, accuracy) in zip(share, groups, strict=True) if s > 0]
    if not pairs or any(accuracy is None for _, accuracy in pairs):
        return None
    return _number(sum(s * accuracy for s, accuracy in pairs if accuracy is not None) / sum(s for s, _ in pairs))


def class_balanced(correct: Bool[np.ndarray, " sample"], y: Int[np.ndarray, " sample"]) -> float | None:
    """Mean of the accuracies of the classes that occur."""
    classes = np.unique(y)
    return _number(np.mean([correct[y == c].mean() for c in classes])) if len(classes) else None


def calibration_error(
    probability: Float[np.ndarray, "sample classes"], correct: Bool[np.ndarray, " sample"]
) -> float | None:
    """Expected calibration error of the predicted class, 15 bins of equal width (Guo et al., 2017)."""
    if not len(correct):
        return None
    confidence = probability.max(1)
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gap = np.bincount(bins, weights=confidence - correct, minlength=CALIBRATION_BINS)
    return _number(np.abs(gap).sum() / len(correct))


def ranking_metrics(
    probability: Float[np.ndarray, "sample classes"], y: Int[np.ndarray, " sample"]
) -> dict[str, float | None]:
    """AUROC, AUPRC and F1: of class 1 for two classes, else the mean over classes, each against the rest.

    None for AUROC and AUPRC unless every class occurs.
    """
    num_classes = probability.shape[1]
    if len(np.unique(y)) < num_classes:
        auroc = auprc = None
    elif num_classes == 2:
        auroc = _number(roc_auc_score(y, probability[:, 1]))
        auprc = _number(average_precision_score(y, probability[:, 1]))
    else:
        truth = np.eye(num_classes, dtype=int)[y]
        auroc = _number(roc_auc_score(truth, probability, average="macro"))
        auprc = _number(average_precision_score(truth, probability, average="macro"))
    if not len(y):
        return {"auroc": auroc, "auprc": auprc, "f1": None}
    average = "binary" if num_classes == 2 else "macro"
    labels = None if num_classes == 2 else list(range(num_classes))
    f1 = f1_score(y, probability.argmax(1), labels=labels, average=average, zero_division=0)  # type: ignore[arg-type]
    return {"auroc": auroc, "auprc": auprc, "f1": _number(f1)}


def bootstrap_intervals(
    correct: Bool[np.ndarray, " sample"],
    y: Int[np.ndarray, " sample"],
    group: Int[np.ndarray, " sample"] | None,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, list[float] | None]:
    """Percentile intervals of average, class-balanced and worst-group accuracy over resamples of the samples.

    Accuracy depends only on how many samples fall into each (class, group, right or wrong) cell, so the cells'
    counts are drawn from a multinomial: the same distribution as drawing samples with replacement. Seeded. With many
    small groups the worst of a resample is biased downwards, and the interval lies below the point.
    """
    if not len(y):
        return {"average": None, "class_balanced": None, "worst_group": None}
    cell_group = np.zeros_like(y) if group is None else group
    cells, counts = np.unique(np.stack([y, cell_group, correct.astype(y.dtype)]), axis=1, return_counts=True)
    draws = np.random.default_rng(0).multinomial(len(y), counts / len(y), size=resamples)
    right = draws * cells[2]

    def accuracies(of: np.ndarray) -> np.ndarray:
        members = of[:, None] == np.unique(of)
        with np.errstate(invalid="ignore"):
            return (right @ members) / (draws @ members)  # (resample, value); NaN where a value was not drawn

    def interval(values: np.ndarray) -> list[float]:
        tail = (1 - level) / 2
        return [_number(q) for q in np.quantile(values, [tail, 1 - tail])]

    return {
        "average": interval(right.sum(1) / len(y)),
        "class_balanced": interval(np.nanmean(accuracies(cells[0]), axis=1)),
        "worst_group": None if group is None else interval(np.nanmin(accuracies(cells[1]), axis=1)),
    }


def _number(value: Any) -> float:
    return float(value)
