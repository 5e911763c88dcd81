"""Estimate the accuracy on the images that a model will be used on, from answers about some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
LEVEL = 0.95


def importance(probabilities: Sequence[float | None]) -> NDArray[np.float64] | None:
    """Return the weight of each answer, with mean 1: the rarer an image is asked about, the more it stands for.

    Return None if it is not known for every answer how likely its image was to be asked about.
    """
    known = [probability for probability in probabilities if probability is not None]
    if not known or len(known) < len(probabilities):
        return None
    weight = 1.0 / np.array(known)
    return weight / weight.mean()


def expected_accuracy(right: NDArray[np.bool_], weight: NDArray[np.float64] | None) -> dict[str, Any]:
    """Return the weighted share of right answers, with an interval of 95 %.

    The interval is that of a Bayesian bootstrap: the weight of every answer is multiplied by an exponential draw. One
    answer that is right and one that is wrong are added to the draws. So a few answers that are all right do not make
    an interval without width.
    """
    weight = np.ones(len(right)) if weight is None else weight
    random = np.random.default_rng(0)
    draws = random.exponential(size=(DRAWS, len(right))) * weight
    more, less = random.exponential(size=(2, DRAWS)) * weight.mean()
    shares = (draws @ right + more) / (draws.sum(1) + more + less)
    tail = (1 - LEVEL) / 2
    return {
        "accuracy": float(weight @ right / weight.sum()),
        "interval": [float(q) for q in np.quantile(shares, [tail, 1 - tail])],
    }
