"""Labels, weights and an attribute of samples become the data that a method trains on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight, column_or_1d
from torch import Tensor

from sitar.data.sample_table import SampleTable, larger_diagonal
from sitar.data.types import Data
from sitar.errors import InputError
from sitar.splits import TRAIN, VAL

MOST = 4  # times as many rows stand for weighted samples as there are samples


@dataclass(frozen=True)
class Samples:
    """Samples have inputs, the place of each label among the classes, a weight and, where it is given, an attribute."""

    x: Tensor
    label: NDArray[np.int64]
    classes: NDArray[Any]
    weight: NDArray[np.float64]
    attribute: NDArray[Any] | None = None

    def data(self, validation_fraction: float | None, seed: int) -> Data:
        """Return what a method trains on. A part of each class becomes `val` if a fraction is given."""
        random = np.random.RandomState(seed)
        rows = np.flatnonzero(self.weight > 0)
        split = np.full(len(self.label), TRAIN)
        if validation_fraction is not None:
            held_out = train_test_split(
                rows, test_size=validation_fraction, stratify=self.label[rows], random_state=random
            )[1]
            split[held_out] = VAL
        parts = [rows[split[rows] == name] for name in (TRAIN, VAL)]
        rows = np.concatenate([part[weighted_rows(self.weight[part], random)] for part in parts if len(part)])
        return self._table(split).take(rows).to_data(self.x[rows], self._checksum())

    def _table(self, split: NDArray[np.str_]) -> SampleTable:
        places, classes = np.arange(len(self.label)), tuple(map(str, self.classes.tolist()))
        if self.attribute is None:
            return SampleTable(places, self.label, split, classes)
        values, attribute = np.unique(self.attribute, return_inverse=True)
        two = len(classes) == len(values) == 2
        majority = larger_diagonal(self.label, attribute) if two else frozenset()
        words = tuple(map(str, values.tolist()))
        return SampleTable(places, self.label, split, classes, attribute, "attribute", words, majority)

    def _checksum(self) -> str:
        checksum = hashlib.blake2b(self.x.numpy().tobytes(), digest_size=32)
        checksum.update(self.weight.tobytes())
        return checksum.hexdigest()


def labelled_samples(
    x: Tensor,
    y: NDArray[Any],
    sample_weight: Any = None,
    class_weight: Mapping[Any, float] | str | None = None,
    attribute: Any = None,
) -> Samples:
    """Check what is said of samples, and put it together."""
    weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
    if attribute is not None:
        attribute = column_or_1d(attribute)
        check_consistent_length(x, attribute)
    classes, label = np.unique(y, return_inverse=True)
    present = np.unique(label[weight > 0])
    if len(present) < 2:
        named = classes[present].tolist()
        raise InputError(
            f"All samples that have a weight are of one class, {named[0]!r}: a classifier needs two classes."
        )
    if class_weight is not None:
        weight = weight * compute_sample_weight(class_weight, y)
    return Samples(x, label.astype(np.int64), classes, weight, attribute)


def weighted_rows(weight: NDArray[np.float64], random: np.random.RandomState) -> NDArray[np.int64]:
    """Return places of samples, each about as often as its weight says: with weight 2 twice as often as with 1.

    Whole multiples of the smallest weight are met exactly, if this takes at most `MOST` times as many rows. Else a
    count is one of the two whole numbers next to what the weight asks for (systematic resampling). Every method takes
    weights in this way, whatever its loss is.
    """
    total = weight.sum()
    size = min(max(len(weight), math.ceil(total / weight.min() - 1e-9)), MOST * len(weight))
    places = (random.uniform() + np.arange(size)) * (total / size)
    return np.minimum(np.searchsorted(np.cumsum(weight), places, side="right"), len(weight) - 1)
