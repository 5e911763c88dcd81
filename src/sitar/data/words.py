"""A column of words keeps each word once, and for every row its place. So a row costs four bytes, not a string."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from sitar.errors import DataError

MOST = 2**33  # bytes of a column as an array, in which every word takes the room of the longest


class Words(Sequence[str]):
    """Holds a word for every row: `values` are the different words, and `codes` says which of them a row has."""

    def __init__(self, values: Sequence[str], codes: NDArray[np.int32]) -> None:
        self.values, self.codes = list(values), codes

    @classmethod
    def of(cls, words: Iterable[str]) -> Words:
        """Return a sequence of words as a column."""
        if isinstance(words, Words):
            return words
        place: dict[str, int] = {}
        codes = np.fromiter((place.setdefault(word, len(place)) for word in words), dtype=np.int32)
        return cls(list(place), codes)

    @classmethod
    def join(cls, parts: Iterable[Words]) -> Words:
        """Return columns, one below the other, as one."""
        place: dict[str, int] = {}
        codes = [
            np.array([place.setdefault(word, len(place)) for word in part.values], dtype=np.int32)[part.codes]
            for part in parts
        ]
        return cls(list(place), np.concatenate(codes) if codes else np.zeros(0, np.int32))

    def map(self, function: Callable[[str], str]) -> Words:
        """Return the column with every word changed. Words that become the same are one."""
        changed = Words.of(map(function, self.values))
        return Words(changed.values, changed.codes[self.codes])

    def ordered(self, key: Callable[[str], object] | None = None) -> Words:
        """Return the column with `values` sorted, and without those that no row has."""
        present = np.bincount(self.codes, minlength=len(self.values)) > 0
        order = sorted(np.flatnonzero(present).tolist(), key=lambda i: (key or str)(self.values[i]))  # type: ignore[arg-type,return-value]
        place = np.zeros(len(self.values), dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return Words([self.values[i] for i in order], place[self.codes])

    def rows(self, wanted: Callable[[str], bool]) -> NDArray[np.int64]:
        """Return the rows whose word is `wanted`."""
        return np.flatnonzero(np.array([wanted(word) for word in self.values], dtype=bool)[self.codes])

    def array(self) -> NDArray[np.str_]:
        """Return the words as an array, which is text even where there is none of them."""
        longest = max(map(len, self.values), default=0)
        if (size := 4 * longest * len(self)) > MOST:
            raise DataError(
                f"A column of {len(self):,} rows has words of up to {longest:,} letters, which takes {size:,} bytes, "
                f"and at most {MOST:,} are taken. Is the table cut, or a quotation mark missing?"
            )
        return np.array(self.values, dtype=np.str_)[self.codes]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return map(self.values.__getitem__, self.codes)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Words: ...
    def __getitem__(self, index: int | slice) -> str | Words:
        if isinstance(index, slice):
            return Words(self.values, self.codes[index])
        return self.values[self.codes[index]]
