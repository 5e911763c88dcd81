"""Candidates agree on some images and disagree on others: two strata, and most questions are about the second.

Within a stratum questions draw at random. So an answer stands for those images of its stratum that nobody was asked
about.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.answers import DISAGREEMENT, RANDOM

TURN = (DISAGREEMENT, DISAGREEMENT, DISAGREEMENT, RANDOM)  # why an image is asked about, again and again
DISPUTED = TURN.count(DISAGREEMENT) / len(TURN)
SHARES = (DISPUTED, 0.5, 0.0)  # of disagreements: today, as both kinds once alternated, and where none is left


def probabilities(disagree: NDArray[np.bool_], disputed: float = DISPUTED) -> NDArray[np.float64]:
    """Return, for each image, the probability with which one of many questions draws it.

    A share `disputed` of the questions draws from the disagreements, and the rest from all images.
    """
    everywhere = np.full(len(disagree), 1 / max(1, len(disagree)))
    if not disagree.any():
        return everywhere
    return (1 - disputed) * everywhere + disputed * disagree / disagree.sum()


def relative_weights(
    disagree: NDArray[np.bool_], place: NDArray[np.int64], kept: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how much each answer counts among those of its stratum.

    `place` is the image of each answer, and `kept` the probability with which a question drew it, or NaN if it existed
    already. The weight is 1 where these candidates were asked about, and else undoes how often a question drew it.
    """
    usual = [probabilities(disagree, share)[place] for share in SHARES]
    is_own = np.isnan(kept) | np.any([np.isclose(kept, p, rtol=1e-6, atol=0) for p in usual], axis=0)
    return np.where(is_own.all() | np.isnan(kept), 1.0, usual[0] / kept)
