"""One table may lie in many files, called shards: those of a folder, of a pattern such as `parts/*.parquet`, or one."""

from __future__ import annotations

import glob
import logging
import os
import posixpath
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.data.splitting import WORDS
from sitar.data.tables import SUFFIXES, TableFile, check_rows, open_table, split_word
from sitar.data.words import Words
from sitar.errors import DataError
from sitar.files import user_path
from sitar.images.files import Files
from sitar.images.parquet import find_shards
from sitar.images.remote import RemoteFile, find_remote

logger = logging.getLogger(__name__)
SHOWN = 3  # columns that are named


def find_tables(given: str) -> list[Path | RemoteFile]:
    """Find the files that `given` names: a file, a folder, a pattern, or a URL that fsspec knows (hf://, s3://)."""
    if "://" in given:
        found: Sequence[Path | RemoteFile] = find_remote(given, SUFFIXES)
    else:
        path = user_path(given)
        if path.is_file():
            return [path]
        if path.is_dir():
            found = list(find_shards(path).values()) + sorted(path.rglob("*.csv"))
        else:
            found = [one for one in map(Path, find_files(str(path))) if one.is_file()]
    kinds = {one.suffix.lower() for one in found}
    if not found:
        raise DataError(
            f"There is no table {given!r}: it is not a file, nor a folder with .parquet or .csv files, and as a "
            "pattern it matches none."
        )
    if len(kinds) > 1:
        raise DataError(
            f"{given!r} names files that end in {', '.join(sorted(kinds))}. Name one kind, such as "
            f"{given.rstrip('/')}/*{sorted(kinds)[-1]}."
        )
    return list(found)


def find_files(pattern: str) -> list[str]:
    """Return what a pattern stands for. Below `**` these are files, and each folder is read once, whatever links to it.

    `glob` would follow two links to their own folder in every order, and not come to an end.
    """
    parts = Path(pattern).parts
    if "**" not in parts:
        return sorted(glob.glob(pattern))
    depth = parts.index("**")
    folders = glob.glob(os.path.join(*parts[:depth], "")) if depth else [""]
    below = ((folder, name) for folder in folders for name in Files([Path(folder)]).all_names())
    return sorted(os.path.join(folder, name) for folder, name in below if _fits(name, parts[depth:]))


def _fits(name: str, pattern: Sequence[str]) -> bool:
    """Say whether a name fits a pattern, part by part. `**` stands for any number of them."""
    parts = name.split("/")
    fits = [False] * len(parts) + [True]  # whether the parts from each on fit what comes last in the pattern
    for wanted in reversed(pattern):
        if wanted == "**":
            fits = [any(fits[i:]) for i in range(len(fits))]
        else:
            fits = [i < len(parts) and fnmatch(parts[i], wanted) and fits[i + 1] for i in range(len(fits))]
    return fits[0]


def open_tables(given: str) -> TableFile:
    """Open the table in the file, or in the files, that `given` names."""
    files = find_tables(given)
    return open_table(files[0]) if len(files) == 1 else Shards(files, given)


def names_of(files: Sequence[Path | RemoteFile]) -> list[str]:
    """Name files by their paths below the folder that all of them lie in, however it was given."""
    paths = [file.path if isinstance(file, RemoteFile) else file.absolute().as_posix() for file in files]
    folder = posixpath.commonpath([posixpath.dirname(path) for path in paths])
    return [posixpath.relpath(path, folder) for path in paths]


class Shards(TableFile):
    """Reads tables that lie one below the other as one. One file is open at a time, and `rows` says how many it has."""

    def __init__(self, files: Sequence[Path | RemoteFile], given: str) -> None:
        self.title = f"The table in {len(files):,} files, {given!r},"
        self.files: list[Path | RemoteFile] = []
        self.rows: list[int] = []
        self._kinds: list[dict[str, str]] = []
        for file in files:
            table = open_table(file, may_be_empty=True)
            if not len(table):
                logger.warning("%s has no rows, and is left out.", table.title)
                continue
            if self.files:
                self._check_same_columns(file, table)
            else:
                self.names = table.names
            self.files.append(file)
            self.rows.append(len(table))
            self._kinds.append({name: table.kind(name) for name in table.names})
        if not self.files:
            raise DataError(f"{self.title} has no rows: all files are empty.")
        check_rows(len(self), self.title.rstrip(","))

    def __len__(self) -> int:
        return sum(self.rows)

    def parts(self) -> Iterator[TableFile]:
        return (open_table(file) for file in self.files)

    def kind(self, name: str) -> str:
        """Return what a column holds in all files; an error names two that differ."""
        first = self._kinds[0][name]
        for file, kinds in zip(self.files, self._kinds, strict=True):
            if kinds[name] != first:
                raise DataError(
                    f"The column {name!r} holds {first} in {str(self.files[0])!r}, and {kinds[name]} in {str(file)!r}. "
                    "Write it as one kind in all files."
                )
        return first

    def kinds(self, name: str) -> set[str]:
        return {kinds[name] for kinds in self._kinds}

    def file_names(self) -> list[str]:
        """Return the name of every file, as the names of its rows begin."""
        return names_of(self.files)

    def words(self, name: str) -> Words:
        self.kind(name)  # 1 and 1.0 would be two words
        return Words.join(part.words(name) for part in self.parts())

    def numbers(self, name: str) -> NDArray[Any]:
        return np.concatenate([part.numbers(name) for part in self.parts()])

    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        for part in self.parts():
            yield from part.blocks(names)

    def place(self, sample: int) -> str:
        ends = np.cumsum(self.rows)
        file = int(np.searchsorted(ends, sample))
        row = sample - int(ends[file]) + self.rows[file]
        return f"{super().place(sample)}, in row {row:,} of {str(self.files[file])!r}"

    def split_words(self) -> Words | None:
        """Return the split that the name of its file gives a row: `train-00000-of-00009.parquet`, `test/0.parquet`.

        None: some file is not named after a split, or all are named after the same one.
        """
        words = [split_word(PurePosixPath(str(file).replace("\\", "/"))) for file in self.files]
        splits = {WORDS.get(word.lower()) for word in words}
        if None in splits or len(splits) < 2:
            return None
        codes = np.repeat(np.arange(len(words), dtype=np.int32), self.rows)
        return Words(words, codes).map(str)

    def _check_same_columns(self, file: Path | RemoteFile, table: TableFile) -> None:
        first, pairs = str(self.files[0]), ((self.names, table.names), (table.names, self.names))
        for (there, here), (has, lacks) in zip(pairs, ((first, str(file)), (str(file), first)), strict=True):
            if missing := [name for name in there if name not in here]:
                more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
                raise DataError(
                    f"{lacks!r} has no column {', '.join(map(repr, missing[:SHOWN]))}{more}, and {has!r} has: the "
                    "files of one table have the same columns. Is a file of another table among them?"
                )
