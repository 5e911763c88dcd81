"""What do the answers say of the candidates? Estimate their accuracies on all images, and draw what is possible.

Images on which all candidates agree, and images on which they do not, are two strata of known size. Questions are drawn
at random within each of them (`next_image.py`), so an answer stands for the images of its stratum that nobody was asked
about. The two strata together give an accuracy without bias, although disagreements are asked about more often.

How sure it is follows from Bayes' rule. The shares of a stratum on which this or that candidate is right have a
Dirichlet prior that weighs as much as one answer and favours no candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.answers import Answer, Answers
from sitar.analysis.ask.pool import Pool
from sitar.analysis.strata import DISPUTED, relative_weights
from sitar.errors import DataError
from sitar.wording import are, counted

DRAWS = 4000
PRIOR = 1.0  # answers that the prior weighs as much as


def check_classes(answers: Sequence[Answer], classes: Sequence[str]) -> None:
    """Refuse answers that name no class."""
    if wrong := [line for line in answers if line.answer not in classes]:
        n = len(wrong)
        raise DataError(
            f"{counted(n, 'answer')} {are(n)} no class of the candidates, such as {wrong[0].answer!r} for "
            f"{wrong[0].image!r}. The classes are {', '.join(classes)}. Correct the file; nothing in it was changed."
        )


@dataclass(frozen=True)
class Evidence:
    """Evidence is what the answers say about the candidates of a pool."""

    pool: Pool
    place: NDArray[np.int64]
    truth: NDArray[np.int64]
    weight: NDArray[np.float64]
    skipped: int
    learned: int
    """It is how many answers a candidate was fitted to. They say nothing of it, and are not among the others."""
    notes: tuple[str, ...]

    @classmethod
    def read(cls, pool: Pool, answers: Answers) -> Evidence:
        """Take the answers about images of the pool. An answer that is no class is refused."""
        known = [line for line in answers.lines if line.image in pool.place]
        notes = [*pool.notes, *answers.notes]
        learned = sum(line.image in pool.fitted and not line.is_skipped for line in answers.lines)
        others = sum(line.image not in pool.place and line.image not in pool.fitted for line in answers.lines)
        if 0 < others == len(answers.lines):
            raise DataError(
                f"None of the {len(answers.lines):,} answers is about one of these {len(pool):,} images, such as that "
                f"about {answers.lines[0].image!r}. Name the images that were asked about, or other answers."
            )
        if learned:
            notes.append(f"{counted(learned, 'answer')} do not count: a candidate was fitted to them.")
        if others:
            notes.append(f"{counted(others, 'answer')} about images that are not among these do not count.")
        given = [line for line in known if not line.is_skipped]
        check_classes(given, pool.classes)
        if skipped := len(known) - len(given):
            notes.append(
                f"{counted(skipped, 'image')} skipped: accuracies are about images whose class a person can tell."
            )
        if labels := sum(line.probability is None for line in given):
            notes.append(
                f"{counted(labels, 'label')} existed already: accuracies take their images for a random choice of all."
            )
        codes = {name: code for code, name in enumerate(pool.classes)}
        truth = np.array([codes[line.answer] for line in given], dtype=np.int64)
        if len(given) > 1 and len(set(truth.tolist())) == 1:
            notes.append(f"All answers are {given[0].answer!r}: how well other classes are told is not known yet.")
        place = np.array([pool.place[line.image] for line in given], dtype=np.int64)
        kept = np.array([line.probability or np.nan for line in given], dtype=np.float64)
        weight = relative_weights(pool.disagree, place, kept)
        return cls(pool, place, truth, weight, skipped, learned, tuple(notes))

    @property
    def n(self) -> int:
        return len(self.place)

    @property
    def left(self) -> int:
        """Return how many images nobody was asked about yet."""
        return len(self.pool) - self.n - self.skipped

    @property
    def is_of_one_class(self) -> bool:
        return len(set(self.truth.tolist())) < 2

    @cached_property
    def strata(self) -> list[Stratum]:
        """Return the two strata, or the one that has images."""
        disagree = self.pool.disagree
        right = (self.pool.predictions[:, self.place] == self.truth).T
        strata = []
        for disputed in (True, False):
            size, mine = int((disagree == disputed).sum()), disagree[self.place] == disputed
            if size:
                prior = _disputed(self.pool) if disputed else _agreed(len(self.pool.runs))
                strata.append(Stratum.make(size, right[mine], self.weight[mine], prior, disputed))
        return strata

    def accuracies(self) -> NDArray[np.float64]:
        """Estimate the accuracy of each candidate on all images: the mean of the strata, by their size."""
        return sum((s.size * s.mean() for s in self.strata), start=np.zeros(1)) / len(self.pool)

    def draws(self, more: float = 0, n: int = DRAWS) -> NDArray[np.float64]:
        """Draw accuracies (draw, candidate) that the answers allow, as if so many more answers had come as expected."""
        random = np.random.default_rng(0)
        total = np.zeros((n, len(self.pool.runs)))
        disputed = next((s for s in self.strata if s.disputed), None)
        share = 0.0 if disputed is None else DISPUTED + (1 - DISPUTED) * disputed.size / len(self.pool)
        for stratum in self.strata:
            later = stratum.later(more * (share if stratum.disputed else 1 - share))
            total += later.size * later.draws(random, n)
        return total / len(self.pool)


@dataclass(frozen=True)
class Stratum:
    """A stratum holds patterns: rows that say which candidates are right. Each has a number of answers and a prior."""

    size: int
    patterns: NDArray[np.bool_]
    counts: NDArray[np.float64]
    prior: NDArray[np.float64]
    disputed: bool

    @classmethod
    def make(
        cls,
        size: int,
        right: NDArray[np.bool_],
        weight: NDArray[np.float64],
        prior: tuple[NDArray[np.bool_], NDArray[np.float64]],
        disputed: bool,
    ) -> Stratum:
        """Count the patterns of the answers. Weights are relative.

        All of them together weigh their effective number: the square of their sum over the sum of their squares.
        """
        scale = weight.sum() / (weight**2).sum() if len(weight) else 1.0
        patterns, which = np.unique(np.concatenate([right, prior[0]]), axis=0, return_inverse=True)
        which, k = which.reshape(-1), len(patterns)
        counts = np.bincount(which[: len(right)], weight * scale, minlength=k).astype(float)
        return cls(
            size, patterns, counts, np.bincount(which[len(right) :], prior[1], minlength=k).astype(float), disputed
        )

    @property
    def n(self) -> float:
        return float(self.counts.sum())

    def expected(self) -> NDArray[np.float64]:
        """Return the share of each pattern that the prior and the answers expect."""
        return (self.counts + PRIOR * self.prior) / (self.n + PRIOR)

    def mean(self) -> NDArray[np.float64]:
        """Return the mean of the answers for each candidate, or what is expected where there is no answer."""
        shares = self.counts / self.n if self.n else self.expected()
        return shares @ self.patterns

    def later(self, more: float) -> Stratum:
        """Return the stratum after so many more answers, if they come as expected."""
        more = min(more, max(0.0, self.size - self.n))
        return Stratum(self.size, self.patterns, self.counts + more * self.expected(), self.prior, self.disputed)

    def draws(self, random: np.random.Generator, n: int) -> NDArray[np.float64]:
        """Draw accuracies (draw, candidate) of the whole stratum: what is known, and what the rest may be."""
        gamma = random.gamma(self.counts + PRIOR * self.prior, size=(n, len(self.counts)))
        shares = gamma / np.maximum(gamma.sum(1, keepdims=True), np.finfo(float).tiny)
        rest = max(0, round(self.size - self.n))
        drawn = random.multinomial(rest, shares) + self.counts
        return drawn @ self.patterns / drawn.sum(1, keepdims=True)


def _disputed(pool: Pool) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return the patterns that disagreements allow, and how often: each class that a candidate names may be true."""
    columns, often = np.unique(pool.predictions[:, pool.disagree], axis=1, return_counts=True)
    patterns, weights = [], []
    for column, n in zip(columns.T, often, strict=True):
        named = np.unique(column)
        patterns += [column == label for label in named]
        weights += [n / len(named)] * len(named)
    return np.array(patterns), np.array(weights) / often.sum()


def _agreed(candidates: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return the patterns of agreement: all candidates are right, or none."""
    return np.array([[True] * candidates, [False] * candidates]), np.array([0.5, 0.5])
