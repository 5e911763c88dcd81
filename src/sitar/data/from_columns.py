"""Users say in words what their samples are. The words become a sample table: classes, splits and groups."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sitar.config import Config
from sitar.data.sample_table import SampleTable, larger_diagonal
from sitar.data.splitting import WORDS, SplitConfig, check_classes, check_leakage, random_split, split_words, with_val
from sitar.data.tables import Column, TableFile
from sitar.data.words import Words
from sitar.errors import DataError
from sitar.splits import VAL

logger = logging.getLogger(__name__)

SPLIT = "split"  # a column of this name probably says the split
FEW = 5  # samples of a class, below which it is named
SHOWN = 5  # classes, or groups, that are named
LEAST_OF_GROUP = 10  # samples of a group in val and in test: the accuracy of fewer is hardly known


class ColumnsConfig(Config):
    """Names the columns of a table."""

    label_column: str = Field(default="label", description="column with the classes")
    split_column: str | None = Field(default=None, description="column with train, val or test; null: a split is made")
    attribute_column: str | None = Field(default=None, description="column with the shortcut, for groups")
    split_by: str | None = Field(default=None, description="column whose values stay on one side, such as patient_id")

    @property
    def settings(self) -> dict[str, str]:
        """Return every column that is asked for, with the setting that names it."""
        columns = {setting: getattr(self, setting) for setting in ColumnsConfig.model_fields}
        return {column: f"data.{setting}" for setting, column in columns.items() if column is not None}

    @property
    def named(self) -> list[str]:
        """Return every column that is asked for."""
        return list(self.settings)


@dataclass(frozen=True)
class SampleColumns:
    """Holds the columns that say what samples are. Only the label is needed."""

    label: Column
    split: Column | None = None
    attribute: Column | None = None
    split_by: Column | None = None


def sample_columns(table: TableFile, config: ColumnsConfig) -> SampleColumns:
    """Read what a table says of its samples, from the columns that the settings name.

    Where no column is named for the split, the names of the files of the table may say it.
    """

    def column(name: str | None) -> Column | None:
        return None if name is None else Column(name, table.words(name), table.place)

    label = Column(config.label_column, table.words(config.label_column), table.place)
    split = column(config.split_column)
    if split is None and (words := table.split_words()) is not None:
        split = Column("the names of the files", words)
    if split is None:
        _warn_of_unused_split(table, config)
    return SampleColumns(label, split, column(config.attribute_column), column(config.split_by))


def _warn_of_unused_split(table: TableFile, config: ColumnsConfig) -> None:
    """Say so if a table has a split that is not asked for: another one will be made."""
    for name in table.names:
        if name.lower() == SPLIT and name not in config.named:
            said = {WORDS.get(word.strip().lower()) for word in table.words(name).ordered().values}
            if None not in said and len(said) > 1:
                logger.warning(
                    "The table has a column %r that holds %s. It is not used, and a split is made at random. To use "
                    "it, set data.split_column=%s.", name, ", ".join(split for split in WORDS if split in said), name,
                )  # fmt: skip


def other_columns(table: TableFile, config: ColumnsConfig, known: Sequence[str]) -> dict[str, Words]:
    """Read every column but the label, the split, and those that are `known`."""
    said = {config.label_column, config.split_column, *known}
    return {name: table.words(name) for name in table.names if name not in said}


def sample_table_from_columns(files: NDArray[Any], columns: SampleColumns, config: SplitConfig) -> SampleTable:
    """Return the table of a user's samples. A split that is not given is made."""
    label, classes = _numbered(columns.label)
    check_classes(classes, len(label))
    attribute, values = (None, ()) if columns.attribute is None else _numbered(columns.attribute)
    split = _split(label, attribute, columns, config)
    _check_unseen(label, split, classes)
    _warn_of_rare(label, classes)
    if columns.attribute is None or attribute is None:
        return SampleTable(files, label, split, classes)
    train = split == "train"
    two = len(classes) == len(values) == 2
    majority = larger_diagonal(label[train], attribute[train]) if two else frozenset()
    table = SampleTable(files, label, split, classes, attribute, columns.attribute.name, values, majority)
    _warn_of_unmeasured(table)
    return table


def filled(column: Column) -> Words:
    """Return the words without the blanks around them. An error counts those that are missing."""
    words = Words.of(column.words).map(str.strip)
    if len(empty := words.rows(lambda word: not word or word.lower() == "nan")):
        raise DataError(
            f"{len(empty):,} of {len(words):,} samples have no value in {column.name!r}, the first is "
            f"{column.place(int(empty[0]) + 1)}. Fill them in, or remove these samples."
        )
    return words


def _numbered(column: Column) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return every word as the place of its value among all values, and these, whole numbers in their own order."""
    words = filled(column).ordered()
    if all(value.removeprefix("-").isdecimal() and len(value) < 19 for value in words.values):
        words = words.ordered(key=int)
    return words.codes.astype(np.int64), tuple(words.values)


def _split(
    label: NDArray[np.int64], attribute: NDArray[np.int64] | None, columns: SampleColumns, config: SplitConfig
) -> NDArray[np.str_]:
    by = None if columns.split_by is None else filled(columns.split_by).ordered()
    codes = None if by is None else by.codes
    if columns.split is None:
        return random_split(label, codes, config.val_share, config.test_share, config.seed, attribute)
    split = split_words(filled(columns.split), f"{columns.split.name!r}", columns.split.place)
    if by is not None and columns.split_by is not None:
        check_leakage(split, by, columns.split_by.name)
    return with_val(label, split, codes, config.val_share, config.seed, attribute)


def _warn_of_rare(label: NDArray[np.int64], classes: Sequence[str]) -> None:
    """Name the classes of a few samples: most often a word in two spellings, which class weights make heavy."""
    counts = np.bincount(label, minlength=len(classes))
    if rare := np.flatnonzero(counts < FEW).tolist():
        named = ", ".join(f"{classes[i]!r} ({counts[i]})" for i in rare[:SHOWN])
        more = f" and {len(rare) - SHOWN} more" if len(rare) > SHOWN else ""
        logger.warning(
            "%d of %d classes have fewer than %d samples: %s%s. Is one of them a slip? Balanced class weights give "
            "each as much weight as the largest.", len(rare), len(classes), FEW, named, more,
        )  # fmt: skip


def _warn_of_unmeasured(table: SampleTable) -> None:
    """Name the groups that val or test has too few samples of: a worst group may be one of them."""
    assert table.group is not None
    names = [f"{label!r} with {value!r}" for label in table.classes for value in table.attribute_values]
    splits = [split for split in (VAL, "test") if split in table.split]
    counts = np.array([np.bincount(table.group[table.split == split], minlength=len(names)) for split in splits])
    if not splits or not len(few := np.flatnonzero(counts.min(0) < LEAST_OF_GROUP)):
        return
    in_splits = [" and ".join(f"{n} in {split}" for n, split in zip(counts[:, i], splits, strict=True)) for i in few]
    named = ", ".join(f"{names[i]} ({found})" for i, found in zip(few[:SHOWN], in_splits, strict=False))
    more = f" and {len(few) - SHOWN} more" if len(few) > SHOWN else ""
    logger.warning(
        "%d of %d groups by %s have fewer than %d samples in %s: %s%s. Where a group has none, its accuracy cannot be "
        "measured and it is never the worst group; where it has few, its accuracy is hardly known. Bring more such "
        "samples, or a split with more of them there (data.val_share, data.test_share).",
        len(few), len(names), table.attribute_name, LEAST_OF_GROUP, " or ".join(splits), named, more,
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
