"""The expected accuracy is that of the deployment, whatever was asked about, and its interval holds what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from helpers.asking import answered, guesses, pool_of
from sitar.analysis.answers import Answers
from sitar.analysis.ask.evidence import Evidence
from sitar.analysis.refit.expected import expected_accuracy, importance


def test_without_weights_it_is_the_share_of_right_answers() -> None:
    right = np.array([True] * 30 + [False] * 10)
    expected = expected_accuracy(right, None)
    assert expected["accuracy"] == 0.75
    low, high = expected["interval"]
    assert low < 0.75 < high
    assert 0.2 < high - low < 0.32  # a normal interval is 0.27 wide


def test_images_that_were_asked_about_more_often_count_less() -> None:
    """Nine of ten images are easy. Half of the questions are about the hard ones, which are wrong."""
    random = np.random.default_rng(0)
    hard = np.arange(1000) < 100
    probability = np.where(hard, 0.5 / 100, 0.5 / 900)
    asked = random.choice(1000, 400, p=probability)
    right = ~hard[asked]
    weight = importance(probability[asked].tolist(), hard, asked)
    assert weight.mean() == pytest.approx(1)
    assert expected_accuracy(right, None)["accuracy"] == pytest.approx(0.5, abs=0.07)
    weighted = expected_accuracy(right, weight)
    assert weighted["accuracy"] == pytest.approx(0.9, abs=0.03)
    assert weighted["interval"][0] < 0.9 < weighted["interval"][1]


@pytest.mark.parametrize("truth", [0.5, 0.8, 0.95])
def test_the_interval_holds_the_truth_as_often_as_it_says(truth: float) -> None:
    held = 0.0
    for k in range(51):
        low, high = expected_accuracy(np.arange(50) < k, None)["interval"]
        held += binom.pmf(k, 50, truth) * (low <= truth <= high)
    assert 0.93 <= held <= 0.98


def test_answers_that_are_all_right_leave_a_doubt() -> None:
    low, high = expected_accuracy(np.full(10, True), None)["interval"]
    assert 0.7 < low < 0.9
    assert high < 1


def test_probabilities_of_other_candidates_weigh_the_answers() -> None:
    agree, place = np.zeros(10, bool), np.array([3, 7])
    np.testing.assert_allclose(importance([None, None], agree, place), [1, 1])
    np.testing.assert_allclose(importance([0.5, None], agree, place), [1 / 3, 5 / 3])
    np.testing.assert_allclose(importance([0.5, 0.25], agree, place), [2 / 3, 4 / 3])


@pytest.mark.parametrize("questions", [12, 40, 70])
def test_the_accuracies_are_those_of_the_choice_between_the_same_candidates(questions: int) -> None:
    """Also in a small folder, where questions have come to the end of the disagreements."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, 80)
    pool = pool_of(guesses(random, truth, 0.9, 0.75))
    answers = answered(pool, truth, questions).lines
    place = np.array([pool.place[line.image] for line in answers])
    for known in (True, False):
        given = [line if known else replace(line, probability=None) for line in answers]
        weight = importance([line.probability for line in given], pool.disagree, place)
        right = pool.predictions[:, place] == truth[place]
        found = [expected_accuracy(row, weight)["accuracy"] for row in right]
        np.testing.assert_allclose(found, Evidence.read(pool, Answers(given)).accuracies())
