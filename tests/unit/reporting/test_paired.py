"""Differences are paired over seeds and samples: they agree with scipy where it has the same test, and are honest."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr, ndtri

from sitar.reporting.paired import (
    Difference,
    Unpaired,
    accuracy_difference,
    auc_difference,
    classical_tests,
    holm,
    metric_difference,
)
from sitar.reporting.paired import mcnemar as exact_mcnemar


def average(accuracies: np.ndarray) -> np.ndarray:
    return accuracies.mean(-2)


def worst(accuracies: np.ndarray) -> np.ndarray:
    return accuracies.min(-2)


def simulate(
    random: np.random.Generator, gain: float = 0.0, seeds: int = 5, of_seed: float = 0.03, size: int = 100
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two methods on the same samples: some samples are hard for both, and seeds move the accuracy of each group."""
    group = np.repeat(np.arange(4), (3 * size, 3 * size, size, size))
    hard = ndtri(random.random((len(group), 1))) * np.sqrt(0.6)
    right = []
    for more in (gain, 0.0):
        moved = random.normal(0, of_seed, (1, seeds)) + random.normal(0, of_seed, (4, seeds))
        accuracy = np.array([0.9, 0.85, 0.7, 0.75])[:, None] + more + moved
        right.append(ndtr(hard + random.normal(size=(len(group), seeds)) * np.sqrt(0.4)) < accuracy[group])
    return right[0], right[1], group


def made(first: int, second: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One seed: samples that only the first method gets right, that only the second does, and that both do."""
    a, b = np.ones((n, 1), bool), np.ones((n, 1), bool)
    b[:first], a[first : first + second] = False, False
    return a, b, np.zeros(n, int)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([average, worst]))
def test_a_against_b_is_minus_b_against_a(seed: int, seeds: int, combine) -> None:
    a, b, group = simulate(np.random.default_rng(seed), gain=0.02, seeds=seeds, size=15)
    there, back = accuracy_difference(a, b, group, combine), accuracy_difference(b, a, group, combine)
    assert there.value == -back.value
    assert there.interval(0.9) == tuple(-end for end in reversed(back.interval(0.9)))
    assert there.p == back.p
    if seeds == 1 and combine is average:
        assert there.only_one_right is None, "there are several strata"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([average, worst]))
def test_identical_runs_differ_by_exactly_nothing(seed: int, seeds: int, combine) -> None:
    a, _, group = simulate(np.random.default_rng(seed), seeds=seeds, size=15)
    same = accuracy_difference(a, a.copy(), group, combine)
    low, high = same.interval()
    assert (same.value, same.p) == (0.0, 1.0)
    assert low == -high < 0, "it is not certain either"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.permutations(range(4)))
def test_the_order_of_seeds_and_samples_does_not_matter(seed: int, order: list[int]) -> None:
    random = np.random.default_rng(seed)
    a, b, group = simulate(random, seeds=4, size=50)
    shuffled = random.permutation(len(group))
    there = accuracy_difference(a, b, group, worst)
    again = accuracy_difference(a[shuffled][:, order], b[shuffled][:, order], group[shuffled], worst)
    assert again.value == pytest.approx(there.value, abs=1e-12)
    np.testing.assert_allclose(again.interval(), there.interval(), atol=1e-12)
    np.testing.assert_allclose(again.each, there.each[order], atol=1e-12)


def test_one_seed_agrees_with_mcnemar_and_with_the_variance_of_a_paired_difference() -> None:
    for first, second, n in itertools.product((0, 5, 6, 20, 60), (0, 3, 9, 30), (100, 1000)):
        found = accuracy_difference(*made(first, second, n), average)
        exact = stats.binomtest(first, first + second).pvalue if first + second else 1.0
        assert found.only_one_right == (first, second)
        assert exact_mcnemar(first, second) == pytest.approx(exact)
        assert classical_tests(found) == {"mcnemar": pytest.approx(exact)}
        assert found.p >= exact * (1 - 1e-9), "no interval excludes 0 where McNemar's test does not reject"
        assert found.p <= max(2 * exact, 1e-3), "and it is little wider than that needs"
        low, high = found.interval()
        assert (found.p < 0.05) == (low > 0 or high < 0)
        moved = ((first + second + 2) - (first - second) ** 2 / (n + 2)) / (n + 2) ** 2  # Bonett and Price
        assert (high - low) / 2 >= 0.9 * 1.96 * np.sqrt(moved)


def test_without_errors_of_samples_it_is_the_paired_t_test() -> None:
    a, b = np.random.default_rng(0).normal(0, 1, (2, 6))
    found = Difference(a - b, a - b, np.zeros((6, 6)))
    theirs = stats.ttest_rel(a, b)
    assert found.p == pytest.approx(theirs.pvalue)
    np.testing.assert_allclose(found.interval(0.9), theirs.confidence_interval(0.9))
    tests = classical_tests(found)
    assert tests["t_test"] == pytest.approx(theirs.pvalue)
    signs = np.array(list(itertools.product((-1, 1), repeat=6)))
    flipped = abs((signs * (a - b)).mean(1)) >= abs((a - b).mean()) - 1e-12
    assert tests["sign_flip"] == pytest.approx(flipped.mean())


def test_seeds_with_the_same_difference_leave_the_error_of_the_samples() -> None:
    each = np.full(3, 0.04)
    found = Difference(each, each, np.full((3, 3), 0.01**2))
    np.testing.assert_allclose(found.interval(), (0.04 - 0.0196, 0.04 + 0.0196), atol=1e-4)
    assert found.p == pytest.approx(2 * stats.norm.sf(4), rel=1e-6)
    assert classical_tests(found) == {}


def test_more_seeds_do_not_remove_the_error_that_all_seeds_share() -> None:
    """The same samples test every seed. Were they drawn for each seed anew, the interval would shrink to nothing."""
    a, b, group = simulate(np.random.default_rng(0), seeds=1, of_seed=0.0, size=300)
    one = accuracy_difference(a, b, group, average)
    copied = accuracy_difference(np.repeat(a, 9, 1), np.repeat(b, 9, 1), group, average)
    np.testing.assert_allclose(copied.interval(), one.interval(), atol=0.002)


def test_aucs_of_several_seeds_have_the_variance_of_delong() -> None:
    influence = np.random.default_rng(0).normal(0, 0.001, (400, 2))
    found = auc_difference(np.array([0.8]), np.array([0.7]), influence[:, :1], influence[:, 1:])
    half = stats.norm.ppf(0.975) * np.sqrt(((influence[:, 0] - influence[:, 1]) ** 2).sum())
    np.testing.assert_allclose(found.interval(), (0.1 - half, 0.1 + half))


def test_aucs_that_no_sample_moves_are_not_certain() -> None:
    """They have the error of a pair of samples more in each group. Another seed that samples move keeps its own."""
    nothing, one, zero = np.zeros((40, 2)), np.ones(2), np.zeros(2)
    found = auc_difference(one, zero, nothing, nothing, unseen=0.02)
    np.testing.assert_allclose(found.covariance, np.full((2, 2), 0.04))
    low, high = found.interval()
    np.testing.assert_allclose((low, high), (1 - 1.96 * 0.2, 1 + 1.96 * 0.2), atol=1e-4)
    assert 1e-7 < found.p < 0.001
    same = auc_difference(one, one, nothing, nothing, unseen=0.02)
    assert (same.value, same.p) == (0.0, 1.0)
    assert same.interval()[0] < 0
    moved = nothing.copy()
    moved[:, 1] = np.random.default_rng(0).normal(0, 0.001, 40)
    found = auc_difference(one, zero, moved, nothing, unseen=0.02)
    np.testing.assert_allclose(found.covariance, np.diag([0.04, (moved[:, 1] ** 2).sum()]))


def of_pairs(mine: np.ndarray, theirs: np.ndarray, covariance: np.ndarray | None = None) -> Unpaired:
    each = (mine[:, None] - theirs).ravel()
    return Unpaired(each, each, np.zeros((len(each), len(each))) if covariance is None else covariance, first=len(mine))


def test_seeds_that_are_not_paired_have_welchs_interval() -> None:
    random = np.random.default_rng(0)
    mine, theirs = random.normal(0.3, 1, 4), random.normal(0, 3, 6)
    found, expected = of_pairs(mine, theirs), stats.ttest_ind(mine, theirs, equal_var=False)
    assert found.value == pytest.approx(mine.mean() - theirs.mean())
    assert found.p == pytest.approx(expected.pvalue)
    np.testing.assert_allclose(found.interval(0.9), expected.confidence_interval(0.9))
    assert (-found).interval(0.9) == pytest.approx(tuple(-end for end in reversed(found.interval(0.9))))
    assert classical_tests(found) == {}, "nothing is paired"


def test_seeds_that_are_not_paired_share_the_error_of_the_samples() -> None:
    """Of a covariance over samples only what different seeds have in common is added to their deviation."""
    spread = (
        np.random.default_rng(0).normal(size=(500, 5)) * 0.01 + np.random.default_rng(1).normal(size=(500, 1)) * 0.02
    )
    spread[:, 2:] *= 0.5
    models = np.cov(spread, rowvar=False)
    contrast = np.array([np.eye(5)[i] - np.eye(5)[2 + j] for i in range(2) for j in range(3)])
    same = of_pairs(np.full(2, 0.04), np.zeros(3), contrast @ models @ contrast.T)
    mine, theirs, across = models[:2, :2], models[2:, 2:], models[:2, 2:]
    common = mine[0, 1] + theirs[~np.eye(3, dtype=bool)].mean() - 2 * across.mean()
    half = 1.96 * np.sqrt(common)
    np.testing.assert_allclose(same.interval(), (0.04 - half, 0.04 + half), atol=1e-5)
    alone = of_pairs(np.array([0.04]), np.zeros(3), (contrast @ models @ contrast.T)[:3, :3])
    half = 1.96 * np.sqrt(models[0, 0] + theirs.mean() - 2 * across[0].mean())
    np.testing.assert_allclose(alone.interval(), (0.04 - half, 0.04 + half), atol=1e-5)


def test_any_metric_is_resampled() -> None:
    a, b, group = simulate(np.random.default_rng(0), gain=0.03, seeds=2)
    sides = a, b

    def value(method: int, seed: int, index: np.ndarray) -> float:
        return float(sides[method][index, seed].mean())

    by_hand = metric_difference(value, 2, group)
    assert by_hand is not None
    ours = accuracy_difference(a, b, np.zeros_like(group), average)
    assert by_hand.value == pytest.approx(ours.value)
    np.testing.assert_allclose(by_hand.covariance, ours.covariance, atol=8e-5)
    assert by_hand.covariance[0, 0] == pytest.approx(ours.covariance[0, 0], rel=0.2)
    assert metric_difference(lambda *_: None, 2, group) is None


def test_holm_against_its_definition() -> None:
    """Adjusted p-values of the example in R's documentation of p.adjust, and the levels that go with them."""
    p = [0.01, 0.02, 0.03, 0.04, 0.05]
    corrected, levels = holm(p)
    np.testing.assert_allclose(corrected, [0.05, 0.08, 0.09, 0.09, 0.09])
    assert levels == [0.01] * 5, "0.01 is not below 0.05 / 5, so that all are tested there"
    corrected, levels = holm([0.04, 0.001])
    np.testing.assert_allclose(corrected, [0.04, 0.002])
    assert levels == [0.05, 0.025]
    assert holm([]) == ([], [])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.012, 0.02, 0.04, 0.2, 1.0]), min_size=1, max_size=6), st.randoms())
def test_a_level_rejects_what_holm_rejects_in_any_order(p: list[float], random) -> None:
    corrected, levels = holm(p)
    for mine, adjusted, level in zip(p, corrected, levels, strict=True):
        assert (mine < level) == (adjusted < 0.05)
    order = random.sample(range(len(p)), len(p))
    again = holm([p[place] for place in order])
    assert again == ([corrected[place] for place in order], [levels[place] for place in order])


def told_apart(count: int, combine, **settings: float) -> float:
    """In which share of simulated comparisons are the two methods told apart?"""
    random = np.random.default_rng(1)
    found = [accuracy_difference(*simulate(random, **settings), combine).interval() for _ in range(count)]  # type: ignore[arg-type]
    return float(np.mean([low > 0 or high < 0 for low, high in found]))


@pytest.mark.ci
def test_few_equal_methods_are_told_apart_and_most_different_ones() -> None:
    assert told_apart(60, average, size=60) <= 0.1
    assert told_apart(15, average, gain=0.05, of_seed=0.01, size=300) >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("combine", [average, worst])
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("of_seed", [0.0, 0.03])
def test_equal_methods_are_told_apart_in_at_most_about_five_of_a_hundred(combine, seeds: int, of_seed: float) -> None:
    assert told_apart(400, combine, seeds=seeds, of_seed=of_seed) <= 0.07


@pytest.mark.slow
def test_five_points_are_found_in_most_comparisons_of_five_seeds() -> None:
    assert told_apart(200, average, gain=0.05, of_seed=0.01, size=640) > 0.9
    assert told_apart(200, worst, gain=0.05, of_seed=0.01, size=640) > 0.8


@pytest.mark.slow
def test_one_seed_knows_nothing_of_other_seeds() -> None:
    """Why the words say so: where seeds matter, one seed tells equal methods apart far too often."""
    assert told_apart(400, average, seeds=1, of_seed=0.0) <= 0.07
    assert told_apart(400, average, seeds=1, of_seed=0.03) > 0.2
