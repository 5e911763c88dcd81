"""Read a column of words, such as a site or a date of each training sample: as numbers, or as a few different words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sitar.config import NamedConfig
from sitar.splits import TRAIN

LEAST_OF_A_VALUE = 10  # samples; rarer values are taken together
FEW_VALUES = 20  # numbers of so few values are taken as words
MISSING, OTHERS = "(missing)", "(others)"


class ColumnValues(NamedTuple):
    """Holds a number for each sample, NaN where it is missing, or the place of its word in `words`."""

    values: NDArray[Any]
    words: tuple[str, ...] = ()


def column_values(words: Sequence[str]) -> ColumnValues | None:
    """Read a column as numbers, dates as days, or words. None: nearly every sample has a value of its own."""
    numbers = _numbers(words)
    if numbers is not None and len(np.unique(numbers)) > FEW_VALUES:
        return ColumnValues(numbers)
    words = [word or MISSING for word in words]
    frequent = {word for word, count in Counter(words).items() if count >= LEAST_OF_A_VALUE}
    if 2 * sum(word in frequent for word in words) < len(words):
        return None
    kept = [word if word in frequent else OTHERS for word in words]
    values = sorted(set(kept))
    place = {value: i for i, value in enumerate(values)}
    return ColumnValues(np.array([place[word] for word in kept]), tuple(values)) if len(values) > 1 else None


def follows(words: Sequence[str], y: NDArray[np.int64]) -> bool:
    """Return whether every value stands for one class, and every class for one value."""
    pairs = set(zip(words, y.tolist(), strict=True))
    return len(pairs) == len(set(words)) == len(np.unique(y))


def _numbers(words: Sequence[str]) -> NDArray[np.float64] | None:
    """Return words as numbers, or dates as days. What is missing is NaN. None: they are neither."""
    for read in (float, _day):
        try:
            numbers = np.array([read(word) if word else np.nan for word in words])
        except ValueError:
            continue
        return np.where(np.isfinite(numbers), numbers, np.nan)
    return None


def _day(word: str) -> float:
    """Return a date as days. What a clock on the wall shows counts, so that the time zone of the machine does not."""
    return datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp() / 86400


def train_files(dataset: Any, config: NamedConfig) -> NDArray[Any]:
    """Return the files of the training samples, in the order of the training split."""
    prepared = dataset.prepare(config)
    table = dataset.samples(config) if prepared is None else prepared.usable
    return table.files[table.split == TRAIN]
