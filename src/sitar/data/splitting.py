"""Data that comes without splits is given some. Data that has splits may name them in other words than ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sitar.config import Config
from sitar.data.words import Words
from sitar.errors import DataError

logger = logging.getLogger(__name__)

WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
MAX_CLASSES = 1000
SHOWN = 5  # words that are named


class SplitConfig(Config):
    """Says how a split is made, for data that may come without one."""

    val_share: float = Field(default=0.1, ge=0, lt=1, description="for validation, where there is no such split")
    test_share: float = Field(default=0.2, ge=0, lt=1, description="for the test, where there are no splits")
    seed: int = Field(default=0, ge=0, description="of the split that is made: not the run's seed")

    @model_validator(mode="after")
    def _something_to_train_on(self) -> SplitConfig:
        if self.val_share + self.test_share >= 1:
            raise ValueError("val_share and test_share leave nothing to train on")
        return self


def split_words(
    words: Sequence[str], where: str, place: Callable[[int], str] = "sample {:,} (counted from 1)".format
) -> NDArray[np.str_]:
    """Return the splits that words name. An error counts the words that name none, and says where the first is."""
    words = Words.of(words)
    if strange := sorted(word for word in words.values if word.strip().lower() not in WORDS):
        counts = np.bincount(words.codes, minlength=len(words.values))
        counted = [f"{word!r} ({counts[words.values.index(word)]:,})" for word in strange[:SHOWN]]
        more = f" and {len(strange) - SHOWN:,} more" if len(strange) > SHOWN else ""
        first = int(words.rows(lambda word: word in strange)[0]) + 1
        raise DataError(
            f"{where} holds {len(strange)} words that name no split, such as {', '.join(counted)}{more}; the first is "
            f"{place(first)}. Use train, val and test."
        )
    return words.map(lambda word: WORDS[word.strip().lower()]).array()


def random_split(
    label: NDArray[np.int64],
    by: NDArray[Any] | None,
    val: float,
    test: float,
    seed: int,
    attribute: NDArray[np.int64] | None = None,
) -> NDArray[np.str_]:
    """Split at random, with the same shares of every class; with `by`, all samples of one value are on one side.

    With `by`, whole values (a patient, a site) are dealt out. The shares then hold as well as the sizes of the values
    allow, over all classes together. With an attribute, they hold for every group instead, in both cases: else a split
    may have no sample that contradicts the shortcut.
    """
    random = np.random.default_rng((seed, 0))
    shares = {"test": test, "val": val, "train": 1 - val - test}
    group = None if attribute is None else label * (attribute.max(initial=0) + 1) + attribute
    if by is None:
        split = np.full(len(label), "train", dtype="<U5")
        strata = label if group is None else group
        for stratum in np.unique(strata):
            members = random.permutation(np.flatnonzero(strata == stratum))
            first, second = round(test * len(members)), round(val * len(members))
            split[members[:first]], split[members[first : first + second]] = "test", "val"
        return split
    _, owner = np.unique(by, return_inverse=True)
    return _dealt(owner, group, {name: share for name, share in shares.items() if share > 0}, random)[owner]


def _dealt(
    owner: NDArray[np.int64],
    group: NDArray[np.int64] | None,
    shares: Mapping[str, float],
    random: np.random.Generator,
) -> NDArray[np.str_]:
    """Deal out whole values, largest first, each to the split that lacks most of it. Return the split of each value.

    With groups, the largest value is the one with the largest part of a group. It goes where the squared deviations
    from the expected counts of groups, each divided by what is expected, then sum to least (as in chi-square).
    """
    cell = np.zeros(len(owner), np.int64) if group is None else np.unique(group, return_inverse=True)[1]
    sizes = np.bincount(cell)
    pairs, counts = np.unique(owner * len(sizes) + cell, return_counts=True)
    holder, held = np.divmod(pairs, len(sizes))
    starts = np.flatnonzero(np.diff(holder, prepend=-1))
    ends = [*starts[1:].tolist(), len(pairs)]
    order = random.permutation(len(starts))
    part = np.maximum.reduceat(counts / sizes[held], starts)[order]
    lacking = {name: share * sizes for name, share in shares.items()}

    def gain(name: str, cells: NDArray[np.int64], n: NDArray[np.int64]) -> float:
        if group is None:
            return float(lacking[name][0])
        return fsum(n * (2 * lacking[name][cells] - n) / (shares[name] * sizes[cells]))  # the same on every machine

    empty, side = set(shares), np.full(len(starts), "train", dtype="<U5")
    if len(starts) < len(empty):
        logger.warning("%d values to split by are too few for %d splits: some stay empty.", len(starts), len(empty))
    for left, value in zip(range(len(starts), 0, -1), order[np.argsort(-part, kind="stable")], strict=True):
        mine = slice(starts[value], ends[value])
        gains = {name: gain(name, held[mine], counts[mine]) for name in sorted(shares)}
        wanting = empty if left <= len(empty) else shares  # the last values go to splits that have none yet
        name = max((name for name in gains if name in wanting), key=gains.__getitem__)
        side[value] = name
        empty.discard(name)
        lacking[name][held[mine]] -= counts[mine]
    return side


def with_val(
    label: NDArray[np.int64],
    split: NDArray[np.str_],
    by: NDArray[Any] | None,
    share: float,
    seed: int,
    attribute: NDArray[np.int64] | None = None,
) -> NDArray[np.str_]:
    """Return the given splits. Where there is no validation split, a share of the training samples becomes one."""
    if "val" in split or share == 0:
        return split
    train = np.flatnonzero(split == "train")
    by, attribute = (None if values is None else values[train] for values in (by, attribute))
    split = split.copy()
    split[train] = random_split(label[train], by, share, 0.0, seed, attribute)
    return split


def check_leakage(split: NDArray[np.str_], by: Sequence[str], column: str) -> None:
    """Refuse a split in which one value of `by` lies on two sides."""
    words = Words.of(by)
    sides = sum((np.bincount(words.codes[split == side], minlength=len(words.values)) > 0).astype(int)
                for side in sorted(set(WORDS.values())))  # fmt: skip
    if leaking := sorted(words.values[i] for i in np.flatnonzero(np.asarray(sides) > 1)):
        raise DataError(
            f"{len(leaking)} values of {column!r} are in more than one split, such as {leaking[0]!r}: a model could "
            "know them from training. Change the split column, or leave it out to have one made."
        )


def check_classes(classes: Sequence[str], samples: int) -> None:
    """Refuse labels that are no classes: one alone, or about one a sample."""
    if len(classes) < 2:
        raise DataError(f"All {samples:,} samples are of one class ({', '.join(classes) or 'none'}): nothing to learn.")
    if len(classes) > MAX_CLASSES or len(classes) > samples / 2:
        raise DataError(
            f"{len(classes):,} classes for {samples:,} samples, such as {classes[0]!r}: these are probably not labels. "
            f"Check which column or folder holds them; at most {MAX_CLASSES:,} classes are allowed."
        )
