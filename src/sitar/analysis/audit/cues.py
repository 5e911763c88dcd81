"""A cue is something simple that is known of every sample. Score how well each cue alone tells the label.

The rule for a cue that tells the label was fixed on generated data (reproduce/audit_rule.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier

FOLDS = 5
DEPTH = 3  # of the decision tree: at most eight answers
LEVEL = 0.95  # of all intervals of a first look together
WIDER = 1.2  # than for independent samples are the intervals, as folds share their training samples
TELLS = 0.3  # how far above chance, of what is possible, a cue alone must be for sure, to tell the label
LEAST_CONFLICTS = 10  # samples of each class that contradict a cue, from which the two can be told apart

Kind = Literal["image", "component", "feature", "file", "column"]
Strength = Literal["tells", "a little", "nothing"]


@dataclass(frozen=True)
class Cue:
    """A cue has numbers (sample, number), or a word for each sample as the place (sample,) of the word in `words`."""

    name: str
    kind: Kind
    values: NDArray[Any]
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class CueScore:
    """A score is the class-balanced accuracy of a cue alone on samples that were not fitted, with its interval.

    `conflicts` counts, for each class, the samples that the cue takes for another class.
    """

    accuracy: float
    low: float
    high: float
    conflicts: tuple[int, ...]
    strength: Strength

    @property
    def apart(self) -> bool:
        """Return whether enough samples of each class contradict the cue, so that it can be told from the label."""
        return min(self.conflicts) >= LEAST_CONFLICTS


def score_cues(cues: Sequence[Cue], y: NDArray[np.int64], num_classes: int) -> list[CueScore]:
    """Score every cue by cross-validation. The more cues there are, the wider is the interval of each."""
    z = WIDER * standard_errors(len(cues))
    return [score_predictions(predicted, y, num_classes, z) for predicted in predict(cues, y, num_classes)]


def standard_errors(num_cues: int) -> float:
    """Return how many standard errors an interval reaches to each side, so that all hold together (Bonferroni)."""
    return NormalDist().inv_cdf(1 - (1 - LEVEL) / (2 * max(1, num_cues)))


def score_predictions(predicted: NDArray[np.int64], y: NDArray[np.int64], num_classes: int, z: float) -> CueScore:
    """Compute the class-balanced accuracy, an interval of `z` standard errors, and what these say.

    Classes are combined as in Zou and Donner's MOVER, from Wilson's interval of each.
    """
    sizes = np.bincount(y, minlength=num_classes)
    right = np.bincount(y[predicted == y], minlength=num_classes)
    share = right / sizes
    middle = (share + z * z / (2 * sizes)) / (1 + z * z / sizes)
    half = z / (1 + z * z / sizes) * np.sqrt(share * (1 - share) / sizes + z * z / (4 * sizes * sizes))
    accuracy = float(share.mean())
    low = accuracy - float(np.sqrt(np.square(share - (middle - half)).sum())) / num_classes
    high = accuracy + float(np.sqrt(np.square(middle + half - share).sum())) / num_classes
    chance = 1 / num_classes
    strength: Strength = "nothing" if low <= chance else "a little" if low < bar(num_classes) else "tells"
    return CueScore(accuracy, max(0.0, low), min(1.0, high), tuple((sizes - right).tolist()), strength)


def bar(num_classes: int) -> float:
    """Return the accuracy from which on a cue tells the label."""
    return 1 / num_classes + TELLS * (1 - 1 / num_classes)


def predict(cues: Sequence[Cue], y: NDArray[np.int64], num_classes: int) -> list[NDArray[np.int64]]:
    """Predict the label of every sample from each cue alone, by a model that was fitted on the other folds."""
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(y, y))
    return [_predicted(cue, y, num_classes, folds) for cue in cues]


def _predicted(cue: Cue, y: NDArray[np.int64], num_classes: int, folds: list[Any]) -> NDArray[np.int64]:
    predicted = np.zeros_like(y)
    for train, test in folds:
        if cue.words:
            predicted[test] = likely_class(cue.values[train], y[train], len(cue.words), num_classes)[cue.values[test]]
        else:
            leaf = max(2, len(train) // 200)
            tree = DecisionTreeClassifier(
                max_depth=DEPTH, min_samples_leaf=leaf, class_weight="balanced", random_state=0
            )
            predicted[test] = tree.fit(cue.values[train], y[train]).predict(cue.values[test])
    return predicted


def likely_class(
    values: NDArray[np.int64], y: NDArray[np.int64], num_values: int, num_classes: int
) -> NDArray[np.int64]:
    """Return, for each value, the class that has the largest share of its own samples there."""
    counts = np.bincount(values * num_classes + y, minlength=num_values * num_classes).reshape(num_values, num_classes)
    sizes = counts.sum(0)
    shares = (counts + 1) / (sizes + num_values)  # one more for each value, so that a rare one says little
    return np.where(sizes > 0, shares, 0.0).argmax(1)  # a class without samples is likely nowhere


def direction(cue: Cue, y: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """Return one number for each sample, along which a cue of several numbers separates the classes most (Fisher)."""
    values = np.nan_to_num(cue.values.astype(np.float64), nan=float(np.nanmean(cue.values)))
    if values.shape[1] == 1:
        return values[:, 0]
    values = (values - values.mean(0)) / np.maximum(values.std(0), 1e-12)
    classes = np.eye(num_classes)[y]
    weights = np.linalg.lstsq(values, classes - classes.mean(0), rcond=None)[0]
    fitted = values @ weights
    _, _, axes = np.linalg.svd(fitted - fitted.mean(0), full_matrices=False)
    return fitted @ (axes[0] if axes[0, -1] >= 0 else -axes[0])  # upwards to the last class
