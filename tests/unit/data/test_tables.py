"""Small tables do not cost much, whatever they hold."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sitar.data.shards import Shards
from sitar.data.tables import WORD_ROWS, ParquetTable, ShardedTable, open_table
from sitar.data.words import Words
from sitar.errors import ConfigError, DataError
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


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_no_table(tmp_path: Path, kind: str, ending: str) -> None:
    """The first would wait for somebody to write into it, and the second has no end."""
    path = tmp_path / f"a.{ending}"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=rf"a\.{ending}' cannot be read: it is not a regular file"):
        open_table(path)


def test_two_pipes_among_the_shards_of_a_benchmark(tmp_path: Path) -> None:
    for name in ("train-0.parquet", "train-1.parquet"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is not a regular file"):
        ShardedTable(tmp_path, "the shards", ["label"])


LONG = "x" * 20_000


@pytest.mark.parametrize(
    "column",
    [
        pa.array([LONG] * 5000),
        pa.array([LONG] * 5000, pa.large_string()),
        pa.array([LONG.encode()] * 5000),
        pa.array([LONG, None] * 2500),
        pa.array([[LONG]] * 5000),
        pa.array([{"a": LONG}] * 5000),
    ],
    ids=["text", "large text", "bytes", "nulls", "lists", "structs"],
)
def test_a_long_word_of_many_rows_is_in_memory_once(tmp_path: Path, column: pa.Array) -> None:
    """Parquet keeps it once too: a file of two megabytes stood for seven gigabytes."""
    pq.write_table(pa.table({"label": column}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert isinstance(table, ParquetTable)
    assert max(batch.nbytes for batch in table.file.iter_batches(WORD_ROWS)) < 2_000_000
    tracemalloc.start()
    words = table.words("label")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert list(words[:2]) == ["" if value is None else str(value) for value in column[:2].to_pylist()]
    assert len(words) == 5000


def test_words_are_those_that_rows_have_in_the_order_of_the_rows(tmp_path: Path) -> None:
    codes = pa.array([3, None, 1, 3], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["unused", "b", "c", "a"]))
    pq.write_table(pa.table({"label": column, "n": [1.5, None, 2.0, 1.5]}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert (table.words("label").values, list(table.words("label"))) == (["a", "", "b"], ["a", "", "b", "a"])
    assert list(table.words("n")) == ["1.5", "", "2.0", "1.5"]
    assert table.kind("label") == "text"


def test_more_rows_than_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes of Parquet stand for hundreds of millions of equal rows."""
    monkeypatch.setattr("sitar.memory.free_memory", lambda: 10_000_000)
    pq.write_table(pa.table({"label": pa.array(np.zeros(400_000, np.int8))}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"400,000 rows.* 0\.0 GB are free"):
        open_table(tmp_path / "a.parquet")
    for name in ("b", "c"):
        pq.write_table(pa.table({"label": pa.array(np.zeros(200_000, np.int8))}), tmp_path / f"{name}.parquet")
    with pytest.raises(ConfigError, match=r"400,000 rows.* 0\.0 GB are free"):
        Shards([tmp_path / "b.parquet", tmp_path / "c.parquet"], "shards")
    assert len(open_table(tmp_path / "b.parquet")) == 200_000


def lists(width: int, rows: int) -> pa.Table:
    values = pa.array(np.zeros(width * rows, np.float32))
    return pa.table({"embedding": pa.ListArray.from_arrays(np.arange(rows + 1) * width, values)})


def test_wide_rows_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sitar.data.tables.BLOCK_VALUES", 10_000)
    pq.write_table(lists(150, 4096), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    blocks = [block[0] for block in table.blocks(["embedding"])]
    assert max(block.size for block in blocks) <= 10_000
    assert sum(map(len, blocks)) == 4096
    pq.write_table(lists(10_001, 2), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"10,001 values in a row.* at most 10,000"):
        list(open_table(tmp_path / "t.parquet").blocks(["embedding"]))


def test_wide_rows_of_many_columns_and_of_long_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sitar.data.tables.BLOCK_VALUES", 1000)
    columns = {f"f.{i}": np.zeros(300) for i in range(100)}
    pq.write_table(pa.table(columns | {"label": pa.array([b"x" * 800] * 300, pa.binary(800))}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert isinstance(table, ParquetTable)
    assert {len(block[0]) for block in table.blocks(list(columns))} == {10}
    assert {len(block[0]) for block in table.blocks(["f.0"])} == {300}
    assert {len(batch) for batch in table._batches(["label"], 300)} == {10}


@pytest.mark.parametrize("code", [2, 31, -1])
def test_a_code_that_stands_for_no_word_is_refused(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file has them. Nested ones are compared by Arrow."""
    pq.write_table(pa.table({"label": ["a", "b", "a"]}), tmp_path / "a.parquet")
    codes = pa.array([0, code, 1], pa.int32())
    bad = pa.DictionaryArray.from_arrays(codes, ["a", "b"], safe=False)
    nested = pa.ListArray.from_arrays([0, 1, 2, 3], bad)
    for column in (bad, nested):
        batch = pa.record_batch([column], ["label"])
        monkeypatch.setattr(ParquetTable, "_batches", lambda *_, batch=batch: iter([batch]))
        with pytest.raises(DataError, match=r"is damaged: .*in the column 'label'"):
            open_table(tmp_path / "a.parquet").words("label")
