"""Three questions are about disagreements, the fourth about any image, and a restart asks the same ones."""

from __future__ import annotations

import numpy as np
import pytest

from sitar.analysis.answers import DISAGREEMENT, RANDOM
from sitar.analysis.ask.next_image import Order, Question
from sitar.analysis.strata import probabilities

DISAGREE = np.arange(20) < 5


def ask(n: int, disagree: np.ndarray = DISAGREE, seed: int = 0) -> list[Question]:
    order, asked = Order(disagree, seed), []
    for number in range(n):
        found = order.next([question.image for question in asked], number)
        if not found:
            break
        asked.append(found[0])
    return asked


def test_a_random_image_follows_three_disagreements() -> None:
    questions = ask(8, np.arange(40) < 20)
    assert [question.why_asked for question in questions] == [DISAGREEMENT, DISAGREEMENT, DISAGREEMENT, RANDOM] * 2
    assert all(question.image < 20 for question in questions if question.why_asked == DISAGREEMENT)


def test_no_image_is_asked_about_twice_and_all_are_asked_about() -> None:
    questions = ask(50)
    assert sorted(question.image for question in questions) == list(range(20))
    assert questions[-1].why_asked == RANDOM, "where no disagreement is left, any image is asked about"


def test_without_disagreement_all_questions_are_random() -> None:
    questions = ask(20, np.zeros(20, dtype=bool))
    assert {question.why_asked for question in questions} == {RANDOM}
    assert {question.probability for question in questions} == {1 / 20}


def test_a_restart_asks_the_same_and_another_seed_does_not() -> None:
    first = ask(10)
    again = Order(DISAGREE, 0).next([question.image for question in first[:7]], 7)
    assert again[0] == first[7]
    assert ask(10, seed=1) != first


def test_the_question_after_the_next_is_known_before_the_answer() -> None:
    order, asked = Order(DISAGREE, 3), []
    for number in range(19):
        now, later = order.next(asked, number)
        asked.append(now.image)
        assert order.next(asked, number + 1)[0] == later


def test_probabilities_are_those_of_the_draws() -> None:
    """Of the first four questions of many seeds, three come from the disagreements and one from all images."""
    p = probabilities(DISAGREE)
    assert p.sum() == pytest.approx(1)
    drawn = np.zeros(20)
    for seed in range(4000):
        order = Order(DISAGREE, seed)
        drawn[order.orders[DISAGREEMENT][0]] += 3
        drawn[order.orders[RANDOM][0]] += 1
    np.testing.assert_allclose(drawn / drawn.sum(), p, atol=0.012)
    assert ask(2)[0].probability == p[ask(2)[0].image]
