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
from sitar.analysis.strata import TURN, probabilities


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
