"""Checksums of blocks of rows: every bit counts, whichever rows are read first, and those of earlier releases hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sitar.errors import DataError
from sitar.integrity import BlockSummer, BlockSums, RowSums, kept_sums, row_sums, rows_in_block

CACHE = Path("features")


def made(rows: int = 5000, width: int = 16) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, width)).astype(np.float16)


def summed(array: np.ndarray, at_a_time: int) -> np.ndarray:
    summer = BlockSummer()
    for start in range(0, len(array), at_a_time):
        summer.add(array[start : start + at_a_time])
    return summer.sums()


@pytest.mark.parametrize("rows", [1, 2047, 2048, 2049, 5000])
def test_sums_do_not_depend_on_how_rows_were_written(rows: int) -> None:
    array = made(rows)
    whole = summed(array, rows)
    assert len(whole) == -(-rows // rows_in_block(array))
    for at_a_time in (1, 100, 2048, 4096):
        assert (summed(array, at_a_time) == whole).all()


def test_one_flipped_bit_is_named_wherever_it_is() -> None:
    array = made()
    sums = summed(array, 1000)
    content = array.view(np.uint8).reshape(-1)
    for bit in np.random.default_rng(1).integers(0, 8 * array.nbytes, 200).tolist():
        row = bit // 8 // 32
        content[bit // 8] ^= 1 << bit % 8
        checked = kept_sums(sums, array, CACHE)
        assert isinstance(checked, BlockSums)
        other = np.array([0, 2048, 4999])
        other = other[other // 2048 != row // 2048]
        checked.check(other, array[other])  # of blocks that are sound
        with pytest.raises(DataError, match=rf"such as rows {row // 2048 * 2048} to \d+, are not what was written"):
            checked.check(np.array([*other, row]), array[[*other, row]])
        with pytest.raises(DataError, match="damaged"):  # again: it was not noted as sound
            checked.check(np.array([row]), array[[row]])
        content[bit // 8] ^= 1 << bit % 8
    kept_sums(sums, array, CACHE).check(np.arange(5000), array)


def test_sums_of_rows_of_an_earlier_release_hold() -> None:
    array = made()
    checked = kept_sums(row_sums(array), array, CACHE)
    assert isinstance(checked, RowSums)
    checked.check(np.arange(5000), array)
    array[7, 3] += 1
    with pytest.raises(DataError, match="such as row 7"):
        kept_sums(row_sums(made()), array, CACHE).check(np.arange(5000), array)


def test_wide_rows_have_a_sum_each() -> None:
    array = np.zeros((3, 2**16), np.float32)
    assert rows_in_block(array) == 1
    assert (summed(array, 2) == row_sums(array)).all()


def test_sums_of_another_array_are_refused() -> None:
    with pytest.raises(ValueError, match="have the shape"):
        kept_sums(np.zeros(17, np.uint32), made(), CACHE)
