"""A table says of every sample, before one is read, its file, label, split and, where there is one, its attribute."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sitar.data.rows import stored_rows
from sitar.data.types import Data, EvalSplit, TrainGroups, TrainSplit
from sitar.integrity import BlockSums, RowSums
from sitar.splits import TRAIN

Cell = tuple[int, int]  # label, attribute
CHECKED = 2**20  # rows whose checksum is computed at a time


@dataclass(frozen=True)
class SampleTable:
    """Holds a row for each sample, and what its numbers stand for.

    `files` is the file of each sample, or its place where all samples lie in one array. `majority` are the (label,
    attribute) cells that follow the shortcut. `pools` are evaluation splits that hold the samples of several others.
    `before` are the sizes of the splits that a severity has thinned out, before it did.
    """

    files: NDArray[Any]
    label: NDArray[np.int64]
    split: NDArray[np.str_]
    classes: tuple[str, ...]
    attribute: NDArray[np.int64] | None = None
    attribute_name: str = ""
    attribute_values: tuple[str, ...] = ()
    majority: frozenset[Cell] = frozenset()
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.files)

    def take(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> SampleTable:
        """Return the rows that a mask keeps or that a list of places names, in that order."""
        attribute = None if self.attribute is None else self.attribute[keep]
        return replace(
            self, files=self.files[keep], label=self.label[keep], split=self.split[keep], attribute=attribute
        )

    @property
    def group(self) -> NDArray[np.int64] | None:
        """Return the group of every sample: the number of its (label, attribute) cell."""
        return None if self.attribute is None else self.label * len(self.attribute_values) + self.attribute

    @property
    def group_names(self) -> tuple[str, ...]:
        """Return the name of every group, such as `label=0,place=1`."""
        if self.attribute is None:
            return ()
        cells = [(label, value) for label in range(len(self.classes)) for value in range(len(self.attribute_values))]
        return tuple(f"label={label},{self.attribute_name}={value}" for label, value in cells)

    def legend(self) -> str:
        """Say what the numbers in the names of groups stand for."""
        if self.attribute is None:
            return ""
        named = (("label", self.classes), (self.attribute_name, self.attribute_values))
        return "; ".join(f"{name} " + ", ".join(f"{i}: {v}" for i, v in enumerate(values)) for name, values in named)

    def in_majority(self) -> NDArray[np.bool_]:
        """Mark the samples that follow the shortcut: all of them where there is no attribute."""
        if self.attribute is None:
            return np.ones(len(self), dtype=bool)
        follows = np.zeros((len(self.classes), len(self.attribute_values)), dtype=bool)
        for label, value in self.majority:
            follows[label, value] = True
        return follows[self.label, self.attribute]

    @property
    def environment(self) -> NDArray[np.int64] | None:
        """Return the environment of every sample, which IRM and V-REx compare.

        Samples that follow the shortcut are one environment and the others a second one. Where nothing says which
        samples follow it, environments are the values of the attribute, such as hospitals.
        """
        return (~self.in_majority()).astype(np.int64) if self.majority else self.attribute

    def splits(self) -> dict[str, NDArray[np.int64]]:
        """Return the places of the samples of every split, pools last. A pool without samples is no split."""
        parts = {name: (name,) for name in _in_order_of_first(self.split)} | dict(self.pools)
        places = {name: np.flatnonzero(np.isin(self.split, part)) for name, part in parts.items()}
        return {name: found for name, found in places.items() if len(found)}

    def counts(self) -> dict[str, dict[str, int]]:
        """Count the samples of each group, or of each class where there are no groups, in every split."""
        cell, names = (self.label, self.classes) if self.group is None else (self.group, self.group_names)
        counts = {}
        for split, keep in self.splits().items():
            sizes = np.bincount(cell[keep], minlength=len(names))
            counts[split] = dict(zip(names, sizes.tolist(), strict=True))
        return counts

    def to_data(
        self,
        inputs: NDArray[Any] | torch.Tensor,
        checksum: str,
        rows: NDArray[np.int64] | None = None,
        sums: RowSums | BlockSums | None = None,
    ) -> Data:
        """Return the samples as training and evaluation see them.

        `inputs` has a row for each sample, in the order of this table, or `rows` says which row is whose. `checksum`
        is that of the inputs; the data's own is of labels, splits and attributes too. `sums` are those of the rows of
        inputs that lie in a cache.
        """
        rows = np.arange(len(self)) if rows is None else rows

        def part(values: NDArray[np.int64] | None, keep: NDArray[np.int64]) -> torch.Tensor | None:
            return None if values is None else torch.from_numpy(values[keep])

        splits = self.splits()
        train = splits.pop(TRAIN, np.array([], dtype=np.int64))
        groups = share = None
        if self.group is not None and self.environment is not None:
            groups = TrainGroups(torch.from_numpy(self.group[train]), torch.from_numpy(self.environment[train]))
            sizes = np.bincount(self.group[train], minlength=len(self.group_names))
            share = tuple((sizes / max(1, len(train))).tolist())
        evaluation = {}
        for name, keep in splits.items():
            y = torch.from_numpy(self.label[keep])
            evaluation[name] = EvalSplit(
                stored_rows(inputs, rows[keep], sums), y, part(self.group, keep), self.group_names, share, self.majority
            )
        split = TrainSplit(stored_rows(inputs, rows[train], sums), torch.from_numpy(self.label[train]))
        attributes = {} if self.attribute is None else {self.attribute_name: self.attribute_values}
        return Data(split, evaluation, self.classes, self._checksum(checksum), groups, attributes)

    def _checksum(self, inputs: str) -> str:
        checksum = hashlib.blake2b(inputs.encode(), digest_size=32)
        for values in (self.label, self.split, self.attribute):
            for start in range(0, 0 if values is None else len(values), CHECKED):
                part = values[start : start + CHECKED]  # type: ignore[index]
                checksum.update((part.astype("<U16") if values is self.split else part).tobytes())
        return checksum.hexdigest()


def _in_order_of_first(words: NDArray[np.str_]) -> Iterator[str]:
    """Yield each of a few different words, in the order in which they come."""
    left = np.ones(len(words), dtype=bool)
    while left.any():
        word = words[left.argmax()]
        yield str(word)
        left &= words != word


def larger_diagonal(label: NDArray[np.int64], attribute: NDArray[np.int64]) -> frozenset[Cell]:
    """Return the one of {(0, 0), (1, 1)} and {(0, 1), (1, 0)} that has more samples.

    That is how an attribute of two values follows a label of two classes.
    """
    agree = int((label == attribute).sum())
    return frozenset({(0, 0), (1, 1)} if 2 * agree >= len(label) else {(0, 1), (1, 0)})


def names(values: Sequence[str]) -> NDArray[np.str_]:
    """Return words as an array, which is text even where there is none of them."""
    return np.array(values, dtype=np.str_)
