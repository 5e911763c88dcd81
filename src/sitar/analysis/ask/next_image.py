"""Which image is asked about next? Three disagreements, which choose, then a random image, which estimates.

Three of four questions are about images on which candidates disagree, and the fourth is about any image. Both are drawn
at random from what was not asked yet. Where no disagreement is left, all questions are about any image. The order
follows from the seed alone, so a restart asks the same question again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.answers import DISAGREEMENT, RANDOM

TURN = (DISAGREEMENT, DISAGREEMENT, DISAGREEMENT, RANDOM)  # why an image is asked about, again and again
DISPUTED = TURN.count(DISAGREEMENT) / len(TURN)
SHARES = (DISPUTED, 0.5, 0.0)  # of disagreements: today, as both kinds once alternated, and where none is left


class Question(NamedTuple):
    """A question is about one image. It says why the image was drawn, and with which probability."""

    image: int
    why_asked: str
    probability: float


class Order:
    """An order draws the questions about images. `disagree` says on which of them candidates disagree."""

    def __init__(self, disagree: NDArray[np.bool_], seed: int) -> None:
        self.probability = probabilities(disagree)
        everything = np.random.default_rng([seed, 0]).permutation(len(disagree))
        disputed = np.random.default_rng([seed, 1]).permutation(np.flatnonzero(disagree))
        self.orders = {DISAGREEMENT: disputed.tolist(), RANDOM: everything.tolist()}

    def next(self, asked: Iterable[int], questions: int, most: int = 2) -> list[Question]:
        """Return the next questions, at most so many.

        `asked` are the images that need no question any more, and `questions` is how many were asked before.
        """
        done, found = set(asked), []
        for number in range(questions, questions + most):
            turn = TURN[number % len(TURN)]
            for why in (turn, RANDOM):
                image = next((image for image in self.orders[why] if image not in done), None)
                if image is not None:
                    any_image = 1 / len(self.probability)  # where no disagreement is left
                    found.append(Question(image, why, float(self.probability[image]) if why == turn else any_image))
                    done.add(image)
                    break
        return found


def probabilities(disagree: NDArray[np.bool_], disputed: float = DISPUTED) -> NDArray[np.float64]:
    """Return, for each image, the probability with which one of many questions draws it.

    A share `disputed` of the questions draws from the disagreements, and the rest from all images.
    """
    everywhere = np.full(len(disagree), 1 / max(1, len(disagree)))
    if not disagree.any():
        return everywhere
    return (1 - disputed) * everywhere + disputed * disagree / disagree.sum()
