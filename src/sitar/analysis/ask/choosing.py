"""Choose the best candidate, and say when the questions can stop.

They can stop when one candidate is best with a probability of SURE, or when the best two differ by less than CLOSE. At
least FEWEST answers are needed, of at least two classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.answers import Answers
from sitar.analysis.ask import words
from sitar.analysis.ask.evidence import Evidence
from sitar.analysis.ask.pool import Pool
from sitar.errors import ConfigError, DataError
from sitar.wording import counted

SURE = 0.95
CLOSE = 0.01
FEWEST = 5
FARTHEST = 500  # answers that are looked ahead
FORECAST_DRAWS = 1000  # a forecast may be rougher, and there are about ten of them


@dataclass(frozen=True)
class Standing:
    """A standing says what is known of one candidate. `best` is the probability that no candidate is better."""

    run: str
    label: str
    accuracy: float
    interval: tuple[float, float]
    best: float


@dataclass(frozen=True)
class Choice:
    """A choice names the best candidate, says how sure that is, and how many more answers would settle it.

    `more_answers` is None where it is settled, or where no number up to FARTHEST, or up to all images, would settle it.
    """

    standings: list[Standing]
    chosen: Standing
    settled: bool
    more_answers: int | None
    answers: int
    skipped: int
    images: int
    disagreement: float
    words: str
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose(pool: Pool, answers: Answers) -> Choice:
    """Choose a candidate. Too few candidates, too few answers, and answers that do not fit are refused."""
    if len(pool.runs) < 2:
        raise ConfigError("One candidate leaves nothing to choose. Give at least two finished runs.")
    evidence = Evidence.read(pool, answers)
    if evidence.n < FEWEST:
        more = counted(evidence.learned, "more answer")
        learned = f" {more} do not count: a candidate was fitted to them." if evidence.learned else ""
        raise DataError(
            f"{counted(evidence.n, 'answer')} cannot choose: at least {FEWEST} are needed.{learned} `sitar ask` "
            "with the same runs, images and answers asks for more."
        )
    return judge(evidence)


def judge(evidence: Evidence) -> Choice:
    """Say what the answers mean, however few they are."""
    pool, draws, accuracies = evidence.pool, evidence.draws(), evidence.accuracies()
    best = share_of_best(draws)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    standings = [
        Standing(run, label, float(accuracies[i]), (float(low[i]), float(high[i])), float(best[i]))
        for i, (run, label) in enumerate(zip(pool.runs, pool.labels, strict=True))
    ]
    verdict = decide(evidence, draws)
    leader, settled = standings[verdict.leader], verdict.is_sure or verdict.is_close
    more = None if settled or not pool.disagree.any() else _more(evidence, verdict.leader)
    return Choice(
        standings, leader, settled, more, evidence.n, evidence.skipped, len(pool), float(pool.disagree.mean()),
        _words(evidence, leader, verdict, more), list(evidence.notes),
    )  # fmt: skip


class Verdict(NamedTuple):
    """A verdict says who leads, whether this candidate is surely the best, and whether the next one is as good."""

    leader: int
    is_sure: bool
    is_close: bool


def decide(evidence: Evidence, draws: NDArray[np.float64]) -> Verdict:
    """Apply the rule that says when the questions can stop. `draws` are those of the evidence."""
    best = share_of_best(draws)
    first, *others = np.lexsort((-evidence.accuracies(), -best)).tolist()
    is_enough = evidence.n >= FEWEST and not evidence.is_of_one_class
    gap = np.quantile(np.abs(draws[:, first] - draws[:, others[0]]), SURE) if others else 0.0
    return Verdict(first, is_enough and bool(best[first] >= SURE), is_enough and bool(others) and bool(gap < CLOSE))


def share_of_best(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of draws in which each candidate is best. Those that tie share it."""
    top = draws >= draws.max(1, keepdims=True) - 1e-12
    return (top / top.sum(1, keepdims=True)).mean(0)


def _more(evidence: Evidence, leader: int) -> int | None:
    """Return how many more answers would settle it if they come as expected, or None if FARTHEST would not."""
    most = min(FARTHEST, evidence.left)

    def settles(more: int) -> bool:
        return bool(share_of_best(evidence.draws(more, FORECAST_DRAWS))[leader] >= SURE)

    if most < 1 or not settles(most):
        return None
    few, many = 0, most
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if settles(middle) else (middle, many)
    return max(many, FEWEST - evidence.n)


def _words(evidence: Evidence, leader: Standing, verdict: Verdict, more: int | None) -> str:
    pool, is_little = evidence.pool, evidence.n < FEWEST
    accuracy = words.with_interval(leader.accuracy, leader.interval)
    if not pool.disagree.any():
        return words.nothing_to_choose(len(pool.runs), None if is_little else accuracy)
    if is_little:
        return words.too_few(evidence.n, FEWEST, float(pool.disagree.mean()))
    if evidence.is_of_one_class:
        return words.of_one_class(leader.label)
    if verdict.is_sure:
        return words.settled(leader.label, leader.best, accuracy)
    if verdict.is_close:
        return words.either_will_do(leader.label, CLOSE)
    return words.ahead(leader.label, leader.best, more, evidence.left, FARTHEST)
