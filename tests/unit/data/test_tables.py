"""Small tables do not cost much, whatever they hold."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sitar.data.tables import open_table
from sitar.data.words import Words
from sitar.errors import DataError
from sitar.images.files import LONGEST, check_paths


def test_many_columns_take_a_moment(tmp_path: Path) -> None:
    names = [f"f{i}" for i in range(40_000)]
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + ",".join(["0"] * len(names)) + "\n")
    began = time.process_time()
    assert open_table(tmp_path / "wide.csv").names == names
    assert time.process_time() - began < 3


def test_a_long_path_is_refused_before_all_are_as_long() -> None:
    with pytest.raises(DataError, match="1 paths are longer than 4,096 characters"):
        check_paths(["a.png", "x" * (LONGEST + 1)], "the table")


def test_a_column_of_long_words_is_refused_with_the_bound() -> None:
    words = Words(["a", "x" * 130_000], np.zeros(20_000, np.int32))
    with pytest.raises(DataError, match="takes 10,400,000,000 bytes, and at most 8,589,934,592 are taken"):
        words.array()


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    words = pa.array([b"good", b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"label": words}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"'label' of the table .* is no text in UTF-8"):
        open_table(tmp_path / "t.parquet").words("label")
