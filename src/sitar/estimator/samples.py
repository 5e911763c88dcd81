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
            split[self._held_out(rows, validation_fraction, random)] = VAL
        parts = [rows[split[rows] == name] for name in (TRAIN, VAL)]
        rows = np.concatenate([part[weighted_rows(self.weight[part], random)] for part in parts if len(part)])
        return self._table(split).take(rows).to_data(self.x[rows], self._checksum())

    def _held_out(self, rows: NDArray[np.int64], fraction: float, random: np.random.RandomState) -> NDArray[np.int64]:
        if not 0 < fraction < 1:
            raise InputError(f"validation_fraction is {fraction}: it is a share of the samples, between 0 and 1.")
        try:
            parts: Any = train_test_split(rows, test_size=fraction, stratify=self.label[rows], random_state=random)
        except ValueError as error:
            raise InputError(
                "Too few samples to hold some of each class out. Use early_stopping=False, give more samples, or "
                f"change validation_fraction. ({error})"
            ) from error
        return parts[1]

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
        attribute = _checked_attribute(attribute)
        check_consistent_length(x, attribute)
    classes, label = np.unique(y, return_inverse=True)
    if class_weight is not None:
        weight = weight * _class_weights(class_weight, y, label, weight)
    present = np.unique(label[weight > 0])
    if len(present) == 0:
        raise InputError("No sample has a weight above 0: look at sample_weight and class_weight.")
    if len(present) == 1:
        only = classes[present].tolist()[0]
        raise InputError(f"All samples that have a weight are of one class, {only!r}: a classifier needs two classes.")
    return Samples(x, label.astype(np.int64), classes, weight, attribute)


def _class_weights(
    class_weight: Mapping[Any, float] | str,
    y: NDArray[Any],
    label: NDArray[np.intp],
    sample_weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    balanced = isinstance(class_weight, str) and class_weight == "balanced"
    weight = _balanced(label, sample_weight) if balanced else compute_sample_weight(class_weight, y)
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise InputError(f"class_weight is {class_weight!r}: weights are finite numbers of 0 or more.")
    return weight


def _balanced(label: NDArray[np.intp], sample_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what makes all classes weigh the same. They are counted by weight, as LogisticRegression counts them."""
    share = sample_weight / (sample_weight.max() or 1)  # a sum of huge weights would be infinite
    total = np.bincount(label, share)
    present = total > 0
    weight = np.zeros(len(total))
    weight[present] = total.sum() / (present.sum() * total[present])
    return weight[label]


def _checked_attribute(values: Any) -> NDArray[Any]:
    """Return the value of each sample, in an array that can be sorted. A sample without a value is in no group."""
    attribute = column_or_1d(values)
    if any(map(_is_missing, attribute.tolist())):
        raise InputError("attribute misses the value of some samples. Fill it in, or leave these samples out.")
    try:
        np.unique(attribute)
    except TypeError as error:
        raise InputError(f"attribute has values of several kinds ({error}). Give words, or numbers.") from error
    return attribute


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 (NaN, and the missing time of numpy)
    except TypeError:  # the missing value of pandas is neither the same as itself nor another
        return True


def weighted_rows(weight: NDArray[np.float64], random: np.random.RandomState) -> NDArray[np.int64]:
    """Return places of samples, each about as often as its weight says: with weight 2 twice as often as with 1.

    Whole multiples of the smallest weight are met exactly, if this takes at most `MOST` times as many rows. Else a
    count is one of the two whole numbers next to what the weight asks for (systematic resampling). Every method takes
    weights in this way, whatever its loss is.
    """
    weight = weight / weight.max()  # any scale is allowed, and a sum of huge weights would be infinite
    total = weight.sum()
    smallest = max(weight.min(), total / (MOST * len(weight)))  # that has a row of its own
    size = max(len(weight), math.ceil(total / smallest - 1e-9))
    places = (random.uniform() + np.arange(size)) * (total / size)
    return np.minimum(np.searchsorted(np.cumsum(weight), places, side="right"), len(weight) - 1)
