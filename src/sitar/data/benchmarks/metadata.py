"""Columns of a benchmark's metadata, from its CSV file or its Parquet shards, checked as they are read."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sitar.data.splitting import WORDS
from sitar.errors import DataError
from sitar.images.parquet import find_shards, read_columns, row_name

T = TypeVar("T", int, str)
Columns = dict[str, list[str]]


def csv_columns(text: str, wanted: Sequence[str], where: str) -> Columns:
    """The columns that are wanted, a value in each line."""
    lines = csv.reader(text.splitlines())
    head = next(lines, [])
    if missing := [column for column in wanted if column not in head]:
        raise DataError(f"{where} lacks the columns {', '.join(missing)}. Bring the original file.")
    rows = [line for line in lines if line]
    if short := [i for i, line in enumerate(rows, 2) if len(line) < len(head)]:
        raise DataError(
            f"{len(short)} lines of {where} are cut, the first is line {short[0]}: half a download? Bring it again."
        )
    if not rows:
        raise DataError(f"{where} has no lines below its head. Bring the original file.")
    return {column: [line[head.index(column)] for line in rows] for column in wanted}


def parquet_columns(root: Path, wanted: Sequence[str]) -> Columns:
    """The columns that are wanted, with `file`, the name of every row, and `split`, the word in its shard's name.

    Hugging Face names shards `data/train-00000-of-00002.parquet` or `default/train/0000.parquet`.
    """
    columns: Columns = {column: [] for column in ("file", "split", *wanted)}
    shards = find_shards(root)
    _check_copies(shards)
    for shard, path in shards.items():
        found = read_columns(path, wanted)
        for column in wanted:
            columns[column] += map(str, found[column])
        rows = len(found[wanted[0]])
        columns["file"] += [row_name(shard, row) for row in range(rows)]
        columns["split"] += [_split_word(PurePosixPath(shard))] * rows
    return columns


def coded(columns: Columns, name: str, codes: Mapping[str, T], where: str) -> NDArray:
    """A column's values, each by its code; an error that counts the values that have none."""
    values = [codes.get(value) for value in columns[name]]
    if strange := [i for i, value in enumerate(values) if value is None]:
        raise DataError(
            f"{len(strange):,} of {len(values):,} values of {name!r} in {where} are none of {', '.join(codes)}, such "
            f"as {columns[name][strange[0]]!r} of sample {strange[0] + 1}. Bring the original file."
        )
    return np.array(values)


def _check_copies(shards: Mapping[str, Path]) -> None:
    """Refuse the shards of one split in two folders, and shards with the same bytes: every image would count twice."""
    homes: dict[str, Path] = {}
    for shard, path in shards.items():
        word = _split_word(PurePosixPath(shard))
        split = WORDS.get(word.lower(), word)
        if (home := homes.setdefault(split, path.parent)) != path.parent:
            raise DataError(
                f"Parquet files of the split {split!r} lie in {str(home)!r} and in {str(path.parent)!r}: two copies of "
                "the same images? Keep one folder, and move the other elsewhere."
            )
    sizes = {path: path.stat().st_size for path in shards.values()}
    often, seen = Counter(sizes.values()), {}
    for path in (path for path, size in sizes.items() if often[size] > 1):
        with path.open("rb") as file:
            twin = seen.setdefault(hashlib.file_digest(file, "sha256").digest(), path)
        if twin != path:
            raise DataError(
                f"The Parquet files {str(twin)!r} and {str(path)!r} are the same: their images would count twice. "
                "Keep one of them."
            )


def _split_word(shard: PurePosixPath) -> str:
    word = shard.name.removesuffix(".parquet").partition("-")[0]
    return word if word.lower() in WORDS or len(shard.parts) < 2 else shard.parts[-2]
