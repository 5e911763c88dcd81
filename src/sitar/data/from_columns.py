"""From what users say of their samples, in words, to an index: classes, splits and groups, or what is wrong."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sitar.data.sample_table import SampleTable, larger_diagonal, names
from sitar.data.splitting import SplitConfig, check_classes, check_leakage, random_split, split_words, with_val
from sitar.errors import DataError

logger = logging.getLogger(__name__)

FEW = 5  # samples of a class, below which it is named
SHOWN = 5  # classes that are named


class Column(NamedTuple):
    """One word for every sample, under the name that the user knows it by."""

    name: str
    words: Sequence[str]


@dataclass(frozen=True)
class Columns:
    """What is said of the samples."""

    label: Column
    split: Column | None = None
    attribute: Column | None = None
    split_by: Column | None = None


def sample_table_from_columns(files: NDArray[Any], columns: Columns, config: SplitConfig) -> SampleTable:
    """Return the table of a user's samples. A split that is not given is made."""
    label, classes = _numbered(columns.label)
    check_classes(classes, len(label))
    split = _split(label, columns, config)
    _check_unseen(label, split, classes)
    _warn_of_rare(label, classes)
    if columns.attribute is None:
        return SampleTable(files, label, split, classes)
    attribute, values = _numbered(columns.attribute)
    train = split == "train"
    two = len(classes) == len(values) == 2
    majority = larger_diagonal(label[train], attribute[train]) if two else frozenset()
    return SampleTable(files, label, split, classes, attribute, columns.attribute.name, values, majority)


def filled(column: Column) -> list[str]:
    """The words without the blanks around them; an error where one is missing."""
    words = [word.strip() for word in column.words]
    if empty := [i for i, word in enumerate(words, 1) if not word or word.lower() == "nan"]:
        raise DataError(
            f"{len(empty):,} of {len(words):,} samples have no value in {column.name!r}, the first is sample "
            f"{empty[0]:,} (counted from 1). Fill them in, or remove these samples."
        )
    return words


def _numbered(column: Column) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Every word as the place of its value among all values, whole numbers in their own order."""
    words = filled(column)
    values = sorted(set(words))
    if all(value.removeprefix("-").isdecimal() and len(value) < 19 for value in values):
        values.sort(key=int)
    place = {value: i for i, value in enumerate(values)}
    return np.array([place[word] for word in words], dtype=np.int64), tuple(values)


def _split(label: NDArray[np.int64], columns: Columns, config: SplitConfig) -> NDArray[np.str_]:
    by = None if columns.split_by is None else names(filled(columns.split_by))
    if columns.split is None:
        return random_split(label, by, config.val_share, config.test_share, config.seed)
    split = split_words(filled(columns.split), f"{columns.split.name!r}")
    if by is not None and columns.split_by is not None:
        check_leakage(split, by, columns.split_by.name)
    return with_val(label, split, by, config.val_share, config.seed)


def _warn_of_rare(label: NDArray[np.int64], classes: Sequence[str]) -> None:
    """Name classes of a few samples: most often a word in two spellings, which class weights would make as heavy."""
    counts = np.bincount(label, minlength=len(classes))
    if rare := np.flatnonzero(counts < FEW).tolist():
        named = ", ".join(f"{classes[i]!r} ({counts[i]})" for i in rare[:SHOWN])
        more = f" and {len(rare) - SHOWN} more" if len(rare) > SHOWN else ""
        logger.warning(
            "%d of %d classes have fewer than %d samples: %s%s. Is one of them a slip? Balanced class weights give "
            "each as much weight as the largest.", len(rare), len(classes), FEW, named, more,
        )  # fmt: skip


def _check_unseen(label: NDArray[np.int64], split: NDArray[np.str_], classes: Sequence[str]) -> None:
    """Refuse classes that only evaluation has: most often a word in two spellings."""
    unseen = np.setdiff1d(label, label[split == "train"])
    if unseen.size:
        count = int(np.isin(label, unseen).sum())
        raise DataError(
            f"{unseen.size} classes, such as {classes[unseen[0]]!r}, have no training sample, only {count} in other "
            "splits: a model cannot learn them. Correct the labels, or the split (one that is made: another data.seed)."
        )
