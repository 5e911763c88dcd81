"""Estimate the accuracy on the images that a model will be used on, from answers about some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.strata import relative_weights

DRAWS = 4000
LEVEL = 0.95


def importance(
    probabilities: Sequence[float | None], disagree: NDArray[np.bool_], place: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the weight of each answer, with mean 1: those of a stratum stand for all of its images, as in `sitar ask`.

    `disagree` says on which images the candidates disagree, and `place` is the image of each answer.
    """
    weight = relative_weights(disagree, place, np.array([one or np.nan for one in probabilities], np.float64))
    for disputed in (True, False):
        mine = disagree[place] == disputed
        if mine.any():
            weight[mine] *= (disagree == disputed).sum() / weight[mine].sum()
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
