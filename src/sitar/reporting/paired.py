"""Estimate how much better one method is than another, from the same seeds and the same test samples.

Two things could have come out differently: the seeds of the training, and the samples of the test. A difference has one
value for each seed, and a covariance of their errors over other test samples. The test samples are the same for all
seeds, so a part of the error is common to all of them, and more seeds do not make it smaller. The interval adds both
parts as squares (Zou and Donner, 2008):

    half-width^2 = (t * deviation over seeds / sqrt(seeds))^2 + (z * common error of the samples)^2

With one seed only the samples are left, and nothing is said about other seeds. Where no seed of one method belongs to a
seed of the other, the first part is Welch's (`Unpaired`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
SLOW_RESAMPLES = 200  # of a metric that is computed anew for each of them
CELLS_AT_ONCE = 4_000_000  # counts that are drawn at once: 32 MB

Floats = NDArray[np.float64]
Combine = Callable[[Floats], Floats]
"""Makes a metric of accuracies (..., stratum, model): (..., model)."""


@dataclass(frozen=True)
class Difference:
    """A difference says how much better one method is than another, for each seed. More is better.

    `centre` is the middle of the interval, for each seed. It differs a little from `each` where a pair of samples is
    added, see `accuracy_difference`. `covariance` (seed, seed) is that of the values over other test samples.
    `only_one_right` counts the samples that the first method alone gets right, and the second alone. It is known for
    the accuracy of one seed over all samples.
    """

    each: Floats
    centre: Floats
    covariance: Floats
    only_one_right: tuple[int, int] | None = None

    def __neg__(self) -> Difference:
        swapped = None if self.only_one_right is None else self.only_one_right[::-1]
        return replace(self, each=0 - self.each, centre=0 - self.centre, only_one_right=swapped)

    @property
    def value(self) -> float:
        """Return the mean over seeds."""
        return float(self.each.mean())

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval that holds the true difference with a probability of `level`."""
        middle, half = float(self.centre.mean()), self._half_width(1 - level)
        return middle - half, middle + half

    @cached_property
    def p(self) -> float:
        """Return the p-value of no difference: 0 lies outside of the interval of any level below 1 - p."""
        distance = abs(float(self.centre.mean()))
        if distance == 0:
            return 1.0
        if distance > self._half_width(1e-300):
            return 0.0
        low, high = -300.0, 0.0  # of log10(p), within which the half-width falls through the distance
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._half_width(10**middle) > distance else (low, middle)
        return 10**high

    def _half_width(self, p: float) -> float:
        from scipy.special import ndtri, stdtrit

        seeds = len(self.each)
        if seeds == 1:
            return float(-ndtri(p / 2) * np.sqrt(self.covariance[0, 0]))
        over_seeds = -stdtrit(seeds - 1, p / 2) * self.centre.std(ddof=1) / np.sqrt(seeds)
        common = (self.covariance.sum() - np.trace(self.covariance)) / (seeds * (seeds - 1))
        return float(np.hypot(over_seeds, -ndtri(p / 2) * np.sqrt(max(0.0, common))))


@dataclass(frozen=True)
class Unpaired(Difference):
    """This difference is of methods whose seeds do not belong together. Only the test samples are the same for both.

    `each`, `centre` and `covariance` have a place for each pair of seeds: those of the first seed of the first method
    with all seeds of the second method, and so on. `first` is the number of seeds of the first method.
    """

    first: int = 1

    def __neg__(self) -> Difference:
        turned = np.arange(len(self.each)).reshape(self.first, -1).T.ravel()
        each, centre, covariance = self.each[turned], self.centre[turned], self.covariance[np.ix_(turned, turned)]
        return Unpaired(0 - each, 0 - centre, covariance, first=len(turned) // self.first)

    def _half_width(self, p: float) -> float:
        from scipy.special import ndtri, stdtrit

        pairs = self.centre.reshape(self.first, -1)
        covariance = self.covariance.reshape(*pairs.shape, *pairs.shape)
        if 1 in pairs.shape:
            return float(-ndtri(p / 2) * np.sqrt(covariance.mean()))
        parts, free = zip(*((m.var(ddof=1) / len(m), len(m) - 1) for m in (pairs.mean(1), pairs.mean(0))), strict=True)
        error = sum(parts)
        degrees = error**2 / sum(part**2 / n for part, n in zip(parts, free, strict=True)) if error else min(free)
        # The error that seeds do not have in common is in the deviation over seeds already.
        other_seeds = [~np.eye(n, dtype=bool) for n in pairs.shape]
        common = covariance.transpose(0, 2, 1, 3)[other_seeds[0]][:, other_seeds[1]].mean()
        return float(np.hypot(stdtrit(degrees, p / 2) * np.sqrt(error), ndtri(p / 2) * np.sqrt(max(0.0, common))))


def accuracy_difference(
    right: NDArray[np.bool_], reference: NDArray[np.bool_], stratum: NDArray[np.int64], combine: Combine
) -> Difference:
    """Compare two methods by which samples they get right (sample, seed).

    The metric is made of the accuracies of strata: for the worst group these are the groups, and `combine` is the
    minimum. Samples are drawn with replacement within each stratum, the same ones for both methods and all seeds, and
    the metric is computed anew for each draw. Each stratum has two samples more, one that only the first method gets
    right and one that only the second does (Bonett and Price, 2012). Without them, few samples on which the methods
    differ would look too certain, and none at all would have no error.

    Only counts matter: of how many samples each seed of each method is right or wrong. So counts are drawn.
    """
    first, second = (_counts(only, stratum) for only in (right & ~reference, reference & ~right))
    there, back = (sorted(map(tuple, np.hstack(pair).tolist())) for pair in ((first, second), (second, first)))
    if (there, right.tobytes()) > (back, reference.tobytes()):  # so that A against B is exactly minus B against A
        return -accuracy_difference(reference, right, stratum, combine)
    seeds = right.shape[1]
    order = np.lexsort(
        np.hstack([first, second, _counts(right, stratum)]).T
    )  # so that the order of seeds changes no draw
    both = np.concatenate([right[:, order], reference[:, order]], axis=1)
    added = np.repeat(np.eye(2, dtype=bool), seeds, axis=1)
    strata = [both[stratum == value] for value in np.unique(stratum)]
    smoothed = [np.concatenate([members, added]) for members in strata]
    random = np.random.default_rng(0)
    drawn = combine(np.stack([_drawn_accuracies(members, random) for members in smoothed], axis=1))
    again = np.argsort(order)  # the seeds as they were given
    difference = Difference(
        _first_less_second(combine(_accuracies(strata)))[again],
        _first_less_second(combine(_accuracies(smoothed)))[again],
        np.atleast_2d(np.cov(_first_less_second(drawn), rowvar=False))[np.ix_(again, again)],
    )
    if seeds > 1 or len(strata) > 1:
        return difference
    return _as_mcnemar(difference, int((right & ~reference).sum()), int((reference & ~right).sum()))


def auc_difference(
    values: Floats, reference: Floats, influence: Floats, of_reference: Floats, unseen: float = 0.0
) -> Difference:
    """Compare two methods by AUCs (seed,), with the influence of each sample on them (sample, seed).

    The covariance is that of DeLong et al. (1988) for AUCs of the same samples. Seeds of which no sample moves the
    difference would look certain. They have the variance of two samples more in each group, of which the first method
    alone ranks one right and the second alone the other. `unseen` is the variance that one of the two brings.
    """
    each, moved = values - reference, influence - of_reference
    certain = ~moved.any(0)
    return Difference(each, each, moved.T @ moved + 2 * unseen * np.outer(certain, certain))


def metric_difference(
    metric: Callable[[int, int, NDArray[np.int64]], float | None], seeds: int, stratum: NDArray[np.int64]
) -> Difference | None:
    """Compare two methods (0 and 1) by any metric of (method, seed, samples), computed anew for draws of samples.

    Samples are drawn with replacement within strata. There is no difference where the metric does not exist.
    """

    def each(index: NDArray[np.int64]) -> list[float]:
        pairs = [(metric(0, seed, index), metric(1, seed, index)) for seed in range(seeds)]
        return [np.nan if one is None or other is None else one - other for one, other in pairs]

    whole = np.array(each(np.arange(len(stratum))))
    if np.isnan(whole).any():
        return None
    random, members = np.random.default_rng(0), [np.flatnonzero(stratum == value) for value in np.unique(stratum)]
    draws = [np.concatenate([random.choice(m, len(m)) for m in members]) for _ in range(SLOW_RESAMPLES)]
    drawn = np.array([each(index) for index in draws])
    drawn = drawn[~np.isnan(drawn).any(1)]
    if len(drawn) < 2:
        return None
    return Difference(whole, whole, np.atleast_2d(np.cov(drawn, rowvar=False)))


def holm(p_values: Sequence[float], level: float = 0.05) -> tuple[list[float], list[float]]:
    """Correct p-values of one family (Holm, 1979). Return them, and the level at which each of them was tested.

    The smallest is tested at level / m, the next at level / (m - 1), and so on. The first that is not below its level
    ends the procedure, and all after it share its level, as equal p-values do. So a p-value is below its level if and
    only if it is rejected, and the order in which they are given does not matter.
    """
    corrected, levels = [1.0] * len(p_values), [level] * len(p_values)
    largest, last, tested = 0.0, -1.0, level
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        p, left = p_values[place], len(p_values) - rank
        if p > last and last < tested:
            tested = level / left
        largest = max(largest, min(1.0, left * p))
        corrected[place], levels[place], last = largest, tested, p
    return corrected, levels


def mcnemar(first: int, second: int) -> float:
    """Return the p-value of McNemar's exact test, of the samples that the first or the second alone gets right."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(first, second), first + second, 0.5))) if first + second else 1.0


def classical_tests(difference: Difference) -> dict[str, float]:
    """Return the p-values of well-known tests, where they exist. They look at the samples or at the seeds, never both.

    One seed: McNemar's exact test of the samples that only one method gets right. From five seeds on: the paired t-test
    and the sign-flip permutation test of the values of the seeds. There are none where seeds are not paired.
    """
    if isinstance(difference, Unpaired):
        return {}
    if difference.only_one_right is not None:
        return {"mcnemar": mcnemar(*difference.only_one_right)}
    each = difference.each
    if len(each) < 5 or np.ptp(each) == 0:
        return {}
    from scipy import stats

    flips = stats.permutation_test(
        (each,), np.mean, permutation_type="samples", vectorized=True, n_resamples=2**16 - 1, rng=0
    )
    t_test: Any = stats.ttest_1samp(each, 0)
    return {"t_test": float(t_test.pvalue), "sign_flip": float(flips.pvalue)}


def _as_mcnemar(difference: Difference, first: int, second: int) -> Difference:
    """Widen the interval of one seed until it excludes 0 only where McNemar's exact test rejects too."""
    from scipy.special import ndtri

    exact = mcnemar(first, second)
    needed = (difference.centre[0] / ndtri(exact / 2)) ** 2 if exact < 1 else 0.0
    covariance = np.maximum(difference.covariance, needed)
    return replace(difference, covariance=covariance, only_one_right=(first, second))


def _counts(holds: NDArray[np.bool_], stratum: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count of how many samples of each stratum it holds (seed, stratum)."""
    return np.stack([holds[stratum == value].sum(0) for value in np.unique(stratum)], axis=1)


def _accuracies(strata: Sequence[NDArray[np.bool_]]) -> Floats:
    return np.stack([members.mean(0) for members in strata])


def _drawn_accuracies(members: NDArray[np.bool_], random: np.random.Generator) -> Floats:
    """Return the accuracies of each model (draw, model) over samples that are drawn with replacement."""
    cells, counts = np.unique(members, axis=0, return_counts=True)
    n, share, at_once = len(members), counts / len(members), max(1, CELLS_AT_ONCE // len(counts))
    sizes = [min(at_once, RESAMPLES - start) for start in range(0, RESAMPLES, at_once)]
    of_model = cells.astype(np.float64)  # products of floats are much faster than those of counts
    return np.concatenate([random.multinomial(n, share, size).astype(np.float64) @ of_model / n for size in sizes])


def _first_less_second(values: Floats) -> Floats:
    """Return the values of the first method (..., seed) less those of the second, which stand behind them."""
    first, second = np.split(values, 2, axis=-1)
    return first - second
