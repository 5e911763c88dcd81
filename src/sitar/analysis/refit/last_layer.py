"""Fit a last layer to training data and answers. Cross-validation on the answers chooses its features and penalty.

The layer that is chosen then learns from the images without an answer too: it guesses their classes, and is fitted
again with the guesses, a few times (self-training). Training data, answers and guesses have fixed shares of the weight,
and every class counts the same within each of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)  # weight of the squared weights, where all samples together weigh 1
FOLDS = 5
REPEATS = 4  # how often the answers are divided into folds, each time in another way
ANSWERED = 0.5  # share of the weight that all answers have together; training samples have the rest
GUESSED = 0.7  # share that guesses have, where there are some
ROUNDS = 8  # how often the guesses are made anew
MOST_FEATURES = 256  # wider ones are reduced to principal components
COMPONENTS = 64
NEVER = -1e4  # logit of a class that no sample has

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Features:
    """These are the features that a candidate computes of its training samples and of new images.

    `answered` are the new images that have an answer, and `new` are all of them.
    """

    train: Floats
    y: Ints
    answered: Floats
    new: Floats


@dataclass(frozen=True)
class LastLayer:
    """A last layer has a weight (class, feature) and a bias (class,)."""

    weight: Floats
    bias: Floats

    def logits(self, features: Floats) -> Floats:
        return features @ self.weight.T + self.bias


@dataclass(frozen=True)
class Setting:
    """A setting says how a last layer is fitted: on which of the features, and with which penalty."""

    features: int
    penalty: float


@dataclass(frozen=True)
class Choice:
    """A choice is the setting that cross-validation has chosen, and the last layer that it gives with all answers.

    `held_out` has the logits of every answer from a fit without it, with the setting that the answers of other folds
    have chosen. So the accuracy of `held_out` is not that of the best of many tries.
    """

    setting: Setting
    layer: LastLayer
    losses: dict[Setting, float]
    held_out: Floats


def choose(
    candidates: Sequence[Features], answers: Ints, num_classes: int, tell: Callable[[int], None] = lambda _: None
) -> Choice:
    """Choose a setting by the log-loss of held-out answers, each class as much as the other.

    The loss is a mean over several divisions into folds, because with few answers one division decides much. Where two
    are equal the simpler one is taken: features that are given first, and the larger penalty. `tell` is told how many
    of the `number_of_fits` are done.
    """
    settings = [Setting(*values) for values in product(range(len(candidates)), PENALTIES)]
    reduced = [reduce(features) for features in candidates]
    done = count(1)
    losses = np.zeros((len(settings), len(answers)))
    for repeat in range(REPEATS):
        folds, logits = folds_of(answers, repeat), np.empty((len(settings), len(answers), num_classes))
        for place, fold in product(range(len(candidates)), range(FOLDS)):
            features, seen, unseen = reduced[place][0], folds != fold, folds == fold
            for number, layer in enumerate(fits(features, answers, seen, num_classes), place * len(PENALTIES)):
                logits[number, unseen] = layer.logits(features.answered[unseen])
                tell(next(done))
        losses += log_loss(logits, answers) / REPEATS
    folds = folds_of(answers)
    held_out = np.empty((len(answers), num_classes))
    for fold in range(FOLDS):
        others, here = folds != fold, folds == fold
        best = settings[int((losses[:, others] @ balanced(answers[others])).argmin())]
        features = reduced[best.features][0]
        held_out[here] = self_trained(features, answers, others, best.penalty, num_classes).logits(
            features.answered[here]
        )
        tell(next(done))
    means = losses @ balanced(answers)
    setting = settings[int(means.argmin())]
    features, axes = reduced[setting.features]
    layer = self_trained(features, answers, np.full(len(answers), True), setting.penalty, num_classes)
    layer = layer if axes is None else LastLayer(layer.weight @ axes, layer.bias)
    return Choice(setting, layer, dict(zip(settings, means.tolist(), strict=True)), held_out)


def number_of_fits(candidates: int) -> int:
    """Return how many steps `choose` tells of, for so many kinds of features."""
    return candidates * len(PENALTIES) * FOLDS * REPEATS + FOLDS


def folds_of(y: Ints, seed: int = 0) -> Ints:
    """Return the fold of each answer. Every class is spread over the folds as evenly as it can be."""
    random = np.random.default_rng(seed)
    order = np.concatenate([random.permutation(np.flatnonzero(y == value)) for value in np.unique(y)])
    folds = np.empty(len(y), np.int64)
    folds[order] = np.arange(len(y)) % FOLDS
    return folds


def reduce(features: Features) -> tuple[Features, Floats | None]:
    """Return wide features as principal components of the training samples, and the axes (component, feature)."""
    if features.train.shape[1] <= MOST_FEATURES:
        return features, None
    centred = features.train - features.train.mean(0)
    axes = np.linalg.eigh(centred.T @ centred)[1].T[::-1][:COMPONENTS]
    return Features(features.train @ axes.T, features.y, features.answered @ axes.T, features.new @ axes.T), axes


def fits(features: Features, answers: Ints, seen: NDArray[np.bool_], num_classes: int) -> Iterator[LastLayer]:
    """Yield a last layer for each penalty, fitted to all training samples and to the answers that are seen."""
    yield from _path(*_labelled(features, answers, seen), PENALTIES, num_classes)


def self_trained(
    features: Features, answers: Ints, seen: NDArray[np.bool_], penalty: float, num_classes: int
) -> LastLayer:
    """Return the last layer of one penalty, after it has learned from its own guesses about all new images."""
    x, y, weight = _labelled(features, answers, seen)
    (layer,) = _path(x, y, weight, [penalty], num_classes)
    for _ in range(ROUNDS):
        guess = layer.logits(features.new).argmax(1)
        shares = [(1 - GUESSED) * weight, GUESSED * balanced(guess)]
        every = (np.concatenate([x, features.new]), np.concatenate([y, guess]), np.concatenate(shares))
        (layer,) = _path(*every, [penalty], num_classes)
    return layer


def _labelled(features: Features, answers: Ints, seen: NDArray[np.bool_]) -> tuple[Floats, Ints, Floats]:
    """Return training samples and the answers that are seen: features, classes and weights that add up to 1."""
    weights = [(1 - ANSWERED) * balanced(features.y), ANSWERED * balanced(answers[seen])]
    x = np.concatenate([features.train, features.answered[seen]])
    return x, np.concatenate([features.y, answers[seen]]), np.concatenate(weights)


def _path(x: Floats, y: Ints, weight: Floats, penalties: Sequence[float], num_classes: int) -> Iterator[LastLayer]:
    """Yield a last layer for each penalty. Each fit starts where the one before has ended."""
    mean = weight @ x
    scale = np.sqrt(weight @ (x - mean) ** 2)
    scale[scale <= 1e-6 * scale.max()] = 1.0  # of a feature that does not vary
    x = (x - mean) / scale
    model = LogisticRegression(warm_start=True, max_iter=500)
    for penalty in penalties:
        model.set_params(C=1 / (2 * penalty))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # held-out answers judge the fit as it is
            model.fit(x, y, sample_weight=weight)
        slope, shift = model.coef_, model.intercept_
        if len(model.classes_) == 2:  # scikit-learn gives the second class alone
            slope, shift = np.concatenate([-slope, slope]) / 2, np.concatenate([-shift, shift]) / 2
        weights, bias = np.zeros((num_classes, x.shape[1])), np.full(num_classes, NEVER)
        weights[model.classes_] = slope / scale
        bias[model.classes_] = shift - weights[model.classes_] @ mean
        yield LastLayer(weights, bias)


def balanced(y: Ints) -> Floats:
    """Return weights of samples that add up to 1. Every class that occurs has the same share."""
    values, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    return 1.0 / (len(values) * counts[place])


def log_loss(logits: Floats, y: Ints) -> Floats:
    """Return the log-loss of each sample, for logits (..., sample, class)."""
    top = logits.max(-1)
    normaliser = top + np.log(np.exp(logits - top[..., None]).sum(-1))
    return normaliser - logits[..., np.arange(len(y)), y]
