"""Warn of a fit that can hardly have learned: it had very few steps, or its model predicts one class alone."""

from __future__ import annotations

import math
import warnings
from typing import Any

from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from sitar.config import TrainConfig
from sitar.data.rows import Stored
from sitar.evaluation.trained_model import TrainedModel

FEW = 100  # steps: a tenth of what max_iter=None takes at least; Adam moves a weight by its learning rate in a step
PART = 1024  # samples that are predicted before the next ones: the first of them mostly have two classes


def warn_of_little_learning(model: TrainedModel, x: Stored, classes: NDArray[Any]) -> None:
    """Warn, as the estimators of scikit-learn do, if the model cannot be what its user asked for."""
    predicted = _first_classes(model, x)
    if len(predicted) == 1:
        _warn(
            f"The fitted model predicts one class, {classes.tolist()[predicted.pop()]!r}, for all training samples: it "
            "has not learned to tell the classes apart. Raise max_iter, or lower the noise (alpha). If one class is "
            "rare, class_weight='balanced' helps."
        )
    elif (steps := _steps(model.config.train, len(x))) < FEW:
        _warn(
            f"The fit had {steps} steps of training, in which a model hardly learns. Raise max_iter, or leave it out: "
            "max_iter=None takes as many steps as small data needs."
        )


def _first_classes(model: TrainedModel, x: Stored) -> set[int]:
    """Return the classes that are predicted, as far as the first part of the samples that has more than one."""
    found: set[int] = set()
    for part in x.split(PART):
        found |= set(model.logits(part).argmax(1).tolist())
        if len(found) > 1:
            break
    return found


def _steps(train: TrainConfig, samples: int) -> int:
    """Return the steps that were planned. Early stopping may have taken fewer, because more did not help."""
    steps = math.ceil(samples / train.batch_size)
    return max(train.epochs, math.ceil(train.least_steps / steps)) * steps


def _warn(message: str) -> None:
    warnings.warn(message, ConvergenceWarning, stacklevel=4)  # which names the line that calls fit
