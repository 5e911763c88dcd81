"""Hugging Face lays data sets out in Parquet files, called shards: a row an image.

A row's name is that of its shard below the root and its number: `data/train-00000-of-00002.parquet/0000017`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from sitar.errors import ConfigError, DataError
from sitar.images.bit_depth import BadImageError
from sitar.images.remote import RemoteFile

IMAGE = "image"  # the column with the bytes of image files, alone or in a struct beside their path
BYTES = "bytes"  # a kind of column, and the field of such a struct
MISSING = 'Parquet files need pyarrow, which cannot be imported ({}). Run `pip install "sitar[parquet]"`.'
ROWS = 64  # read at once: a row group can be the whole shard
AT_ONCE = 2**28  # bytes of images read at once: a file of kilobytes can repeat one of gigabytes in every row
SHOWN = 100  # letters of a path in a message


def find_shards(root: Path) -> dict[str, Path]:
    """Find the Parquet files below `root`, by their name, but for hidden folders, where programs keep copies.

    Where some of a set (-00001-of-00003) are missing, that is an error.
    """
    every = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.parquet"))}
    shards = {name: path for name, path in every.items() if "/." not in f"/{name}"}
    sets: dict[tuple[str, int], set[int]] = {}
    for name in shards:
        if numbered := re.fullmatch(r"(.*)-([0-9]{1,9})-of-([0-9]{1,9})(-\w+)?\.parquet", name):
            sets.setdefault((numbered[1], int(numbered[3])), set()).add(int(numbered[2]))
    for (name, total), numbers in sets.items():
        there = {number for number in numbers if number < total}
        if len(there) < total:
            first = next(number for number in range(total) if number not in there)
            raise DataError(
                f"{total - len(there):,} of the {total:,} Parquet files {name}-* are missing in {str(root)!r}, the "
                f"first is number {first}: half a download? Bring all of them."
            )
    return shards


def row_name(shard: str, row: int) -> str:
    """Name a row. Names sort as the rows do, so that a sorted list of them is read from front to back."""
    return f"{shard}/{row:07}"


def holds_bytes(kind: Any) -> bool:
    """Say whether an Arrow type holds the bytes of files: alone, or as the field `bytes` of a struct."""
    from pyarrow import types

    if types.is_struct(kind):
        place = kind.get_field_index(BYTES)
        kind = kind.field(place).type if place >= 0 else None
    if kind is not None and types.is_dictionary(kind):
        kind = kind.value_type
    return str(kind).partition("[")[0] in ("binary", "large_binary", "binary_view", "fixed_size_binary")


def check_images(file: Any, title: str) -> None:
    """Refuse an open shard whose images are not there as the bytes of image files."""
    from pyarrow import types

    kind = file.schema_arrow.field(IMAGE).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not holds_bytes(kind):
        raise DataError(f"The column {IMAGE!r} of {title} holds {kind}, not the bytes of image files.")


class Shard:
    """Reads the images of one file. In the order of its rows that is cheap: a few at a time are in memory."""

    def __init__(self, path: Path | RemoteFile, column: str = IMAGE) -> None:
        self.path, self.column = path, column
        self.close()

    @cached_property
    def stamp(self) -> str:
        """Return a text that changes when the file does, or when another column of it is read."""
        column = "" if self.column == IMAGE else f" {self.column}"
        if isinstance(self.path, RemoteFile):
            return self.path.stamp() + column
        status = self.path.stat()
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}{column}"

    def close(self) -> None:
        """Let go of the file, and of the rows at hand. Reading opens it again."""
        self._file: Any = None
        self._ends: list[int] = []  # of each row group
        self._rows: Sequence[Any] = ()
        self._first = self._end = 0  # of the rows at hand; of their row group
        self._batches: Iterator[Any] = iter(())

    def read(self, row: int) -> bytes:
        try:
            if not self._first <= row < self._first + len(self._rows):
                self._seek(row)
            image = self._rows[row - self._first].as_py()
        except (OSError, ValueError, NotImplementedError, IndexError, KeyError, StopIteration) as error:  # Arrow's
            self.close()
            if isinstance(self.path, RemoteFile) and isinstance(error, OSError):  # the host, and no image of it
                said = f"{str(self.path)!r} cannot be read further: {str(error)[:SHOWN]}. Try again."
                raise DataError(said) from error
            reason = str(error) or "it has fewer rows than it says"
            raise BadImageError(f"the Parquet file is damaged: {reason}") from error
        content = image.get(BYTES) if isinstance(image, Mapping) else image
        if content is None:
            path = image.get("path") if isinstance(image, Mapping) else None
            told = f", only the path {str(path)[:SHOWN]!r}: save the bytes of the images too" if path else ""
            raise BadImageError(f"its row holds no image{told}")
        if not isinstance(content, bytes):
            kind = type(content).__name__
            raise BadImageError(f"the column {self.column!r} holds {kind}, not the bytes of image files")
        return content

    def _seek(self, row: int) -> None:
        if self._file is None:
            self._file = open_parquet(self.path)
            metadata = self._file.metadata
            self._ends = list(accumulate(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))
        if not self._first <= row < self._end:
            group = next(i for i, end in enumerate(self._ends) if row < end)
            self._first, self._end = (self._ends[group - 1] if group else 0), self._ends[group]
            size = self._file.metadata.row_group(group).total_byte_size  # no image of the group is larger
            at_once = max(1, min(ROWS, AT_ONCE // max(1, size)))
            self._batches = self._file.iter_batches(at_once, row_groups=[group], columns=[self.column])
            self._rows = ()
        while row >= self._first + len(self._rows):
            self._first += len(self._rows)
            self._rows = next(self._batches).column(0)


def open_parquet(path: Path | RemoteFile, *, by_codes: bool = False) -> Any:
    """Open a Parquet file with pyarrow, which a user may not have.

    `by_codes`: text comes as codes of its different words, as the file keeps it. A long word of many rows would else
    be in memory for each of them. Who reads images wants none of it: those of a whole row group would be kept.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(MISSING.format(error)) from error
    if isinstance(path, Path) and path.exists() and not path.is_file():  # a pipe would wait for somebody to write
        raise DataError(f"{str(path)!r} cannot be read: it is not a regular file, but a folder, a pipe or a device.")
    try:
        source = path.open() if isinstance(path, RemoteFile) else path
        # mapped and without read-ahead: a row group would else be in memory as a whole
        options = {} if isinstance(path, RemoteFile) else {"memory_map": True, "pre_buffer": False}
        file = pyarrow.parquet.ParquetFile(source, **options)
        if not by_codes:
            return file
        leaves = [file.schema.column(i) for i in range(file.metadata.num_columns)]
        text = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        return pyarrow.parquet.ParquetFile(source, metadata=file.metadata, read_dictionary=text, **options)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{str(path)!r} cannot be read: it is no Parquet file, or was cut ({error}). Bring it again."
        ) from error
