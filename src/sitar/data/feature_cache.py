"""Features are read once, some rows at a time, into one array on the disk, which every later run maps into memory.

A cache is a folder. It holds features.npy (n, d) in float16 or float32, sums.npy (the CRC-32 of each block of
rows), and index.json, which is written last: the checksum of sums.npy and of the numbers of each file of the table, and
how many rows it has. After a process that was killed, the next one starts anew. The sums are checked when a cache is
opened, and each block when a process first reads a row of it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sitar.data.tables import FLOAT16, TableFile
from sitar.errors import DataError
from sitar.files import read_npy, to_json, to_npy, write_atomic, write_npy_header
from sitar.images.cache import cache_root
from sitar.images.remote import RemoteFile
from sitar.integrity import BlockSummer, BlockSums, RowSums, kept_sums
from sitar.integrity import checksum as file_checksum
from sitar.locks import locked
from sitar.writing import replaced

VERSION = 1  # of the numbers: a change in reading makes new caches
ARRAY, SUMS, CLOSED = "features.npy", "sums.npy", "index.json"
ROWS = 4096  # that are checked at a time
SPARE = 2**26  # bytes that stay free on the disk
SHOWN = 5  # files that are named
Kind = Literal["float16", "float32"]


@dataclass(frozen=True)
class CachedFeatures:
    """Holds the features of every row, mapped from the disk, and a checksum of them."""

    array: NDArray[Any]
    checksum: str
    sums: RowSums | BlockSums


def kind_of(table: TableFile, names: Sequence[str], asked: Kind | None) -> Kind:
    """Return the type that features are kept in: the one that is asked for, else float16 where all of them have it."""
    if asked is not None:
        return asked
    halves = {FLOAT16, f"lists of {FLOAT16}"}
    return "float16" if all(table.kinds(name) <= halves for name in names) else "float32"


def cached_features(
    files: Sequence[Path | RemoteFile],
    table: TableFile,
    names: Sequence[str],
    asked: Kind | None,
    tell: Callable[[int], None] = lambda _: None,
) -> CachedFeatures:
    """Return the features that the columns `names` of a table hold, from the cache or read now.

    The key of the cache is made of the names, sizes and times of `files`, of the columns and of the type. `tell` counts
    rows.
    """
    kind = kind_of(table, names, asked)
    key = hashlib.sha256(f"{VERSION} {kind} {list(names)!r}".encode())
    for file in files:
        key.update(os.fsencode(f"\n{file.name} {_stamp(file)}"))
    folder = cache_root() / f"features-{kind}-{key.hexdigest()[:16]}"
    if not (folder / CLOSED).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", wait=True):  # one process reads, the others wait
            if not (folder / CLOSED).is_file():  # another process may have read while this one waited
                _make(folder, table, names, kind, tell)
    try:
        index = json.loads((folder / CLOSED).read_text(encoding="utf-8"))
        array = read_npy(folder / ARRAY)
        if array.shape != (index["rows"], index["width"]) or array.dtype != np.dtype(kind):
            raise ValueError(f"it has the shape {array.shape}")
        if index["checksum"] != _checksum(kind, index["width"], index["parts"]):
            raise ValueError(f"{CLOSED} is not what was written")
        return CachedFeatures(array, index["checksum"], _sums(folder, array, index))
    except (OSError, ValueError, EOFError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"The cache {str(folder)!r} is damaged ({error}). Remove that folder: it will be made again."
        ) from error


def marked_blocks(part: TableFile, names: Sequence[str], kind: Kind) -> Iterator[tuple[NDArray[Any], dict[int, str]]]:
    """Read the features of a table some rows at a time, as (rows, d).

    Rows with features that are missing, NaN or infinite are marked: by their place in the block, with such a column.
    """
    for columns in part.blocks(names):
        with np.errstate(over="ignore"):  # what the type cannot hold is infinite, and found below
            blocks = [np.ascontiguousarray(values, dtype=kind) for values in columns]
        block = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
        flawed: dict[int, str] = {}
        if not np.isfinite(block).all():
            for name, values in zip(names, blocks, strict=True):
                for row in np.flatnonzero(~np.isfinite(values).all(axis=1)).tolist():
                    flawed.setdefault(row, name)
        yield block, flawed


def feature_blocks(part: TableFile, names: Sequence[str], kind: Kind) -> Iterator[NDArray[Any]]:
    """Read the features of a table some rows at a time, as (rows, d). Rows that cannot be used are refused."""
    wrong, first, column, row = 0, 0, "", 0
    for block, flawed in marked_blocks(part, names, kind):
        if flawed and not wrong:
            first = row + min(flawed)
            column = flawed[min(flawed)]
        wrong += len(flawed)
        row += len(block)
        if not wrong:
            yield block
    if wrong:
        raise FlawedRowsError(_lower(part.title), wrong, row, first, column, kind)


class FlawedRowsError(DataError):
    """Some rows of a file have features that are missing, NaN or infinite. Other files may have such rows, too."""

    def __init__(
        self, title: str, wrong: int, rows: int, first: int, column: str, kind: Kind, others: Sequence[str] = ()
    ) -> None:
        self.about = (title, wrong, rows, first, column, kind)
        self.short = f"{title} ({wrong:,} of {rows:,}, the first is sample {first + 1:,})"
        hint = " Features above 65,504 need data.dtype=float32." if kind == "float16" else ""
        more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
        too = f" So have others: {', '.join(others[:SHOWN])}{more}." if others else ""
        super().__init__(
            f"{wrong:,} of {rows:,} samples have features that are missing, NaN or infinite in {column!r}, the first "
            f"is sample {first + 1:,} (counted from 1) of {title}.{too} Fill them in, or remove these samples.{hint}"
        )

    def with_others(self, parts: Iterator[TableFile], names: Sequence[str]) -> FlawedRowsError:
        """Return the error with the other files that have such rows, so that all can be mended at once."""
        others = []
        for part in parts:
            try:
                for _ in feature_blocks(part, names, self.about[-1]):
                    pass
            except FlawedRowsError as other:
                others.append(other.short)
            except DataError:
                break  # it is told when these rows are mended
        return FlawedRowsError(*self.about, others)


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def _stamp(file: Path | RemoteFile) -> str:
    if isinstance(file, RemoteFile):
        return file.stamp()
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _make(folder: Path, table: TableFile, names: Sequence[str], kind: Kind, tell: Callable[[int], None]) -> None:
    """Read every row into a file, give the file its name when it is whole, and close the cache."""
    whole, parts, files = len(table), [], table.parts()
    width, rows, seen, sums = 0, 0, {}, BlockSummer()
    try:
        with replaced(folder / ARRAY) as out:
            for part in files:
                checksum, before = hashlib.blake2b(digest_size=32), rows
                for block in feature_blocks(part, names, kind):
                    if not width:
                        width = block.shape[1]
                        check_space(folder, whole * width * block.itemsize)
                        write_npy_header(out, (whole, width), block.dtype)
                    if block.shape[1] != width:
                        raise DataError(
                            f"{part.title} has {block.shape[1]:,} features in a row, and rows before have {width:,}: "
                            "every sample needs as many numbers."
                        )
                    out.write(block.data.cast("B"))
                    sums.add(block)
                    checksum.update(block.data)
                    rows += len(block)
                    tell(rows)
                digest = checksum.hexdigest()
                if digest in seen:
                    raise DataError(
                        f"{part.title} has the same numbers as {seen[digest]}: its rows would count twice. Keep one."
                    )
                seen[digest] = _lower(part.title)
                parts.append({"rows": rows - before, "checksum": digest})
            if rows != whole:
                raise DataError(f"{table.title} has {rows:,} rows and promises {whole:,}: it is damaged.")
            of_blocks = to_npy(sums.sums())
            write_atomic(folder / SUMS, of_blocks)
        closing = {"version": VERSION, "rows": rows, "width": width, "parts": parts}
        closing["checksum"] = _checksum(kind, width, parts)
        closing["sums"] = file_checksum(of_blocks)
        write_atomic(folder / CLOSED, to_json(closing))
    except FlawedRowsError as error:
        raise error.with_others(files, names) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _full(folder, whole * width * np.dtype(kind).itemsize) from error


def _checksum(kind: Kind, width: int, parts: list[dict[str, Any]]) -> str:
    return hashlib.blake2b(json.dumps([kind, width, parts]).encode(), digest_size=32).hexdigest()


def _sums(folder: Path, array: NDArray[Any], index: dict[str, Any]) -> RowSums | BlockSums:
    """Return the checksums. For a cache of an early release they are computed, from all of its rows."""
    if "sums" not in index:
        found, start = BlockSummer(), 0
        for part in index["parts"]:
            checksum, end = hashlib.blake2b(digest_size=32), start + part["rows"]
            for begin in range(start, end, ROWS):
                block = np.ascontiguousarray(array[begin : min(begin + ROWS, end)])
                checksum.update(block.data)
                found.add(block)
            if checksum.hexdigest() != part["checksum"]:
                raise ValueError(f"rows {start:,} to {end:,} are not what was written, by the checksum")
            start = end
        sums = found.sums()
        with suppress(OSError):  # somebody else's cache
            content = to_npy(sums)
            write_atomic(folder / SUMS, content)
            write_atomic(folder / CLOSED, to_json({**index, "sums": file_checksum(content)}))
        return kept_sums(sums, array, folder)
    content = (folder / SUMS).read_bytes()
    if file_checksum(content) != index["sums"]:
        raise ValueError(f"{SUMS} is not what was written, by the checksum")
    return kept_sums(np.load(io.BytesIO(content)), array, folder)


def check_space(folder: Path, needed: int) -> None:
    """Refuse to begin what the disk cannot hold."""
    if shutil.disk_usage(folder).free < needed + SPARE:
        raise _full(folder, needed)


def _full(folder: Path, needed: int) -> DataError:
    free = shutil.disk_usage(folder).free
    return DataError(
        f"The features need {needed / 1e9:,.2f} GB ({needed:,} bytes) in {str(folder.parent)!r}, and {free / 1e9:,.2f} "
        "GB are free on that disk. Make room, or name a folder on another disk in the environment variable "
        "SITAR_CACHE. data.dtype=float16 halves what float32 needs."
    )
