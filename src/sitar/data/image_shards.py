"""A table may hold the images themselves: Parquet files, a row an image, as Hugging Face's `datasets` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sitar.data.shards import Shards, names_of
from sitar.data.tables import ParquetTable, TableFile, check_different
from sitar.data.words import Words
from sitar.errors import DataError
from sitar.images.files import Files
from sitar.images.parquet import BYTES, row_name

NOTES = b"huggingface"  # the key under which `datasets` notes what columns are


def holds_images(table: TableFile, column: str) -> bool:
    """Say whether a column of a table holds images, and not their paths."""
    return column in table.names and table.kind(column) == BYTES


class ImageShards(TableFile):
    """Reads what Parquet files say of the images that they hold, and where each image lies.

    Whole numbers that `datasets` notes as classes are read as the names of these.
    """

    def __init__(self, table: TableFile, column: str) -> None:
        assert isinstance(table, ParquetTable | Shards)
        self.table, self.column = table, column
        self.title, self.names = table.title, table.names
        files = table.files if isinstance(table, Shards) else [table.path]
        self.places = dict(zip(names_of(files), files, strict=True))
        if len(self.places) < len(files):
            raise DataError(f"{table.title} has a file that is named more than once. Name each file once.")
        check_different(file for file in self.places.values() if isinstance(file, Path))

    def __len__(self) -> int:
        return len(self.table)

    def rows(self) -> list[str]:
        """Return the name of every image: that of its file, and the number of its row, counted from 0."""
        sizes = self.table.rows if isinstance(self.table, Shards) else [len(self.table)]
        return [row_name(name, row) for name, size in zip(self.places, sizes, strict=True) for row in range(size)]

    def files(self) -> Files:
        """Return what reads an image by its name."""
        return Files([], shards=self.places, column=self.column)

    def words(self, name: str) -> Words:
        self.table.kind(name)  # which is the same in all files
        parts, named = [], None
        for part in self.table.parts():
            assert isinstance(part, ParquetTable)
            classes = _class_names(part, name)
            if named is not None and named != (classes is not None):
                raise DataError(
                    f"{part.title} {'names' if classes else 'does not name'} the classes of its column {name!r}, and "
                    "files before it do otherwise: numbers and names would not agree. Write them alike."
                )
            named = classes is not None
            parts.append(part.words(name) if classes is None else _named(part, name, classes))
        return Words.join(parts)

    def numbers(self, name: str) -> NDArray[Any]:
        return self.table.numbers(name)

    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        return self.table.blocks(names)

    def kind(self, name: str) -> str:
        return self.table.kind(name)

    def place(self, sample: int) -> str:
        return self.table.place(sample)

    def split_words(self) -> Words | None:
        return self.table.split_words()

    def columns_of_images(self) -> list[str]:
        """Return the columns that hold images, or values of several parts, which are no words."""
        kinds = {name: self.table.kind(name) for name in self.names}
        return [name for name, kind in kinds.items() if kind == BYTES or kind.startswith(("lists", "struct", "map"))]


def _class_names(table: ParquetTable, name: str) -> list[str] | None:
    """Return the names of the classes that the whole numbers of a column stand for; None: they are not noted."""
    if table.kind(name) != "whole numbers":
        return None
    try:
        notes = json.loads((table.file.schema_arrow.metadata or {})[NOTES])
        names = notes["info"]["features"][name]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):  # of another program, or damaged: numbers are classes too
        return None
    return names if isinstance(names, list) and names and all(isinstance(one, str) for one in names) else None


def _named(table: ParquetTable, name: str, classes: Sequence[str]) -> Words:
    """Return a column of numbers as the names of their classes. -1, which `datasets` writes for none, is empty."""
    words = table.words(name)
    known = {str(i): one for i, one in enumerate(classes)} | {"-1": "", "": ""}
    if len(unknown := words.rows(lambda word: word not in known)):
        raise DataError(
            f"{table.title} has the class {words[unknown[0]]} in {name!r}, in row {unknown[0] + 1:,} (counted from 1), "
            f"and names {len(classes):,} classes, counted from 0. Is the file damaged?"
        )
    return words.map(known.__getitem__)
