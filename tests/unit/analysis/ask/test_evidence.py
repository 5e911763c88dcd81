"""Estimates have no bias, intervals hold what they promise, and answers that do not fit are said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from helpers.asking import answered, guesses, pool_of
from sitar.analysis.answers import Answer, Answers
from sitar.analysis.ask.choosing import share_of_best
from sitar.analysis.ask.evidence import Evidence
from sitar.analysis.strata import probabilities
from sitar.errors import DataError

N = 300


def test_estimates_have_no_bias_although_disagreements_are_asked_more_often() -> None:
    """Over 2,000 sessions the mean estimate is the accuracy on all images; the plain mean of the answers is not."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, N)
    pool = pool_of(guesses(random, truth, 0.9, 0.6))
    real = (pool.predictions == truth).mean(1)
    estimates, plain = [], []
    for seed in range(2000):
        evidence = Evidence.read(pool, answered(pool, truth, 20, seed))
        estimates.append(evidence.accuracies())
        plain.append((pool.predictions[:, evidence.place] == evidence.truth).mean(1))
    error = np.std(estimates, axis=0) / np.sqrt(2000)
    assert (np.abs(np.mean(estimates, axis=0) - real) < 3.5 * error).all()
    assert (np.abs(np.mean(plain, axis=0) - real) > 10 * error).any()
    assert (error < 0.004).all()


def test_a_model_that_was_not_asked_about_is_estimated_by_the_kept_probabilities() -> None:
    """Answers about the disagreements of two candidates say how good two others are, and how surely."""
    random = np.random.default_rng(1)
    truth = random.integers(0, 2, 1000)
    predictions = guesses(random, truth, 0.95, 0.6, 0.7, 0.7)
    predictions[3, :500] = predictions[2, :500]
    asked, others = pool_of(predictions[:2]), pool_of(predictions[2:])
    others.predictions[0, asked.disagree] = truth[asked.disagree]  # right exactly where questions are asked
    real = (others.predictions == truth).mean(1)
    weighted, unweighted, hits = [], [], []
    for seed in range(300):
        answers = answered(asked, truth, 60, seed)
        evidence = Evidence.read(others, answers)
        weighted.append(evidence.accuracies())
        low, high = np.quantile(evidence.draws(n=1000), [0.025, 0.975], axis=0)
        hits.append((low <= real) & (real <= high))
        given = Answers([replace(line, probability=None) for line in answers.lines])
        unweighted.append(Evidence.read(others, given).accuracies())
    error = np.std(weighted, axis=0) / np.sqrt(len(weighted))
    assert (np.abs(np.mean(weighted, axis=0) - real) < 3 * error).all()
    assert error.max() < 0.008  # the line above asks for something
    assert np.mean(hits) > 0.85  # 0.63 where weights counted as that many answers
    assert np.abs(np.mean(unweighted, axis=0) - real).max() > 0.05


def test_a_file_that_was_begun_when_questions_alternated_counts_every_answer_alike() -> None:
    """Within a stratum every question draws at random, whatever share of the questions went to it."""
    random = np.random.default_rng(3)
    truth = random.integers(0, 2, 40)
    pool = pool_of(guesses(random, truth, 0.8, 0.6))
    before = probabilities(pool.disagree, 0.5)
    answers = answered(pool, truth, 40, 0).lines
    mixed = [replace(line, probability=before[pool.place[line.image]]) for line in answers[:20]] + answers[20:]
    evidence = Evidence.read(pool, Answers(mixed))
    np.testing.assert_array_equal(evidence.weight, 1)
    np.testing.assert_allclose(evidence.accuracies(), (pool.predictions == truth).mean(1))  # all images are answered


def test_answers_about_other_candidates_are_weighted_alike_although_some_fit_these_by_chance() -> None:
    """Where no disagreement was left, a kept probability is that of any image, for every pool of as many images."""
    random = np.random.default_rng(4)
    truth = random.integers(0, 2, 40)
    asked, others = pool_of(guesses(random, truth, 0.97, 0.97)), pool_of(guesses(random, truth, 0.7, 0.6))
    answers = answered(asked, truth, 20, 0)
    kept = np.array([line.probability for line in answers.lines])
    assert np.isclose(kept, 1 / 40).any()
    assert not np.isclose(kept, 1 / 40).all()
    evidence = Evidence.read(others, answers)
    np.testing.assert_allclose(evidence.weight * kept, probabilities(others.disagree)[evidence.place])


def test_intervals_hold_the_accuracy_in_95_of_100_sessions() -> None:
    random = np.random.default_rng(2)
    hits = []
    for seed in range(300):
        truth = random.integers(0, 2, N)
        pool = pool_of(guesses(random, truth, 0.8, 0.65))
        real = (pool.predictions == truth).mean(1)
        draws = Evidence.read(pool, answered(pool, truth, 30, seed)).draws()
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
        hits.append((low <= real) & (real <= high))
    assert 0.92 < np.mean(hits) < 0.985


@pytest.mark.parametrize(("wins", "losses"), [(5, 0), (7, 3), (2, 6)])
def test_the_probability_of_being_best_is_that_of_a_beta_posterior(wins: int, losses: int) -> None:
    """Two candidates, two classes, many images: the answers on disagreements are throws of one coin."""
    n = 100_000
    pool = pool_of(np.stack([np.zeros(n, int), (np.arange(n) < n // 2).astype(int)]))
    lines = [Answer(pool.names[i], "cat" if i < wins else "dog") for i in range(wins + losses)]
    best = share_of_best(Evidence.read(pool, Answers(lines)).draws())
    assert best[0] == pytest.approx(beta(wins + 0.5, losses + 0.5).sf(0.5), abs=0.02)
    assert best.sum() == pytest.approx(1)


def test_where_all_images_are_answered_nothing_is_left_to_chance() -> None:
    random = np.random.default_rng(3)
    truth = random.integers(0, 3, 40)
    pool = pool_of(random.integers(0, 3, (3, 40)), ("a", "b", "c"))
    evidence = Evidence.read(pool, answered(pool, truth, 40))
    real = (pool.predictions == truth).mean(1)
    np.testing.assert_allclose(evidence.accuracies(), real)
    np.testing.assert_allclose(evidence.draws(), np.broadcast_to(real, (len(evidence.draws()), 3)))


def test_before_any_answer_no_candidate_is_preferred() -> None:
    pool = pool_of([[0, 0, 1, 1, 0], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0]])
    best = share_of_best(Evidence.read(pool, Answers()).draws())
    assert best.max() < 0.6
    two = pool_of([[0, 0, 1, 1, 0], [1, 1, 0, 1, 0]])
    np.testing.assert_allclose(share_of_best(Evidence.read(two, Answers()).draws()), 0.5, atol=0.03)


def test_answers_that_do_not_fit_are_said() -> None:
    pool = pool_of([[0, 1, 0, 1], [1, 1, 0, 0]])
    image = pool.names
    with pytest.raises(DataError, match="None of the 1 answers is about one of these 4 images"):
        Evidence.read(pool, Answers([Answer("other.png", "cat")]))
    with pytest.raises(DataError, match=r"'bird' for '00001\.png'\. The classes are cat, dog"):
        Evidence.read(pool, Answers([Answer(image[1], "bird"), Answer(image[0], "cat")]))
    lines = [Answer("other.png", "cat"), Answer(image[0], "cat"), Answer(image[1], ""), Answer(image[2], "cat")]
    evidence = Evidence.read(pool, Answers(lines, ["a note of the file"]))
    assert evidence.n == 2
    assert evidence.skipped == 1
    said = " ".join(evidence.notes)
    for part in ("a note of the file", "1 answer about images", "1 image skipped", "2 labels existed already"):
        assert part in said
    assert "All answers are 'cat'" in said
