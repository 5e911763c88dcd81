"""Tables with named columns are read from a CSV file, a Parquet file, or the Parquet shards of a benchmark."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sitar.data.splitting import WORDS
from sitar.data.words import Words
from sitar.errors import ConfigError, DataError
from sitar.files import read_regular
from sitar.images.parquet import (
    BYTES,
    IMAGE,
    RemoteFile,
    check_images,
    find_shards,
    holds_bytes,
    open_parquet,
    row_name,
)
from sitar.memory import check_memory
from sitar.registry import did_you_mean

T = TypeVar("T", int, str)

SUFFIXES = (".csv", ".parquet")
FLOAT16 = "float16"  # a kind of column
CSV_COST = 8  # bytes of memory for each byte of a CSV file: cells are words of Python
BLOCK_ROWS = 4096  # of features that are in memory at a time
WORD_ROWS = 2**18  # of one column of words or numbers
BLOCK_VALUES = 2**26  # of the rows that are in memory at a time, where they have many values
NO_LIST = r"Expected all lists to be of size=\d+ but index (\d+) had size=0"  # what pyarrow says of a null
SHOWN = 3  # columns that are named
ROW_COST = 32  # bytes of memory for each row of a Parquet file, whose own bytes may be none: equal rows are counted


class Column(NamedTuple):
    """Holds one word for every sample, under the name that the user knows it by."""

    name: str
    words: Sequence[str]
    place: Callable[[int], str] = "sample {:,} (counted from 1)".format
    """Return where the sample of a number, counted from 1, lies."""


class TableFile(ABC):
    """Reads a table with named columns. `title` is what messages call it."""

    title: str
    names: list[str]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def words(self, name: str) -> Words:
        """Return a column as text; what is missing is empty."""

    @abstractmethod
    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of numbers (n,), or of lists of numbers of one length (n, length); missing ones are NaN."""

    @abstractmethod
    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        """Read columns of numbers some rows at a time: for each column (rows, 1), or (rows, length) of lists."""

    def kind(self, name: str) -> str:
        """Return what a column holds: text, whole numbers, floats, float16, bytes or another kind.

        Of lists it is what their values are. A struct with the bytes of a file is bytes.
        """
        return "text"

    def kinds(self, name: str) -> set[str]:
        """Return what a column holds in any of the files of the table."""
        return {self.kind(name)}

    def parts(self) -> Iterator[TableFile]:
        """Open the tables, one after the other, that lie one below the other in this one."""
        yield self

    def split_words(self) -> Words | None:
        """Return the split that the name of its file gives a row; None: the names do not say it."""
        return None

    def place(self, sample: int) -> str:
        """Return in words where the sample of a number, counted from 1, lies."""
        return f"sample {sample:,} (counted from 1)"

    def check_columns(self, wanted: Sequence[str], settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """Refuse a table that lacks a column. `settings` say by which setting a user names a column."""
        if missing := [name for name in wanted if name not in self.names]:
            asked = " and ".join(f"--set {settings[name]}=..." for name in missing if name in settings)
            raise DataError(
                f"{self.title} has no column {', '.join(map(repr, missing))}.{did_you_mean(missing[0], self.names)} "
                f"It has: {', '.join(self.names) or 'none'}." + (f" Say which is meant with {asked}." if asked else "")
            )

    def coded(self, name: str, codes: Mapping[str, T]) -> NDArray:
        """Return a column with a code in the place of each word, as `coded` does."""
        return coded(Column(name, self.words(name)), codes, self.title)


def open_table(path: Path | RemoteFile, *, may_be_empty: bool = False) -> TableFile:
    """Open the table in a file. The end of its name says which kind it is."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"The table {str(path)!r} is neither .csv nor .parquet, which are the kinds that are read.")
    title = f"The table {str(path)!r}"
    if path.suffix.lower() == ".parquet":
        table = ParquetTable(path, title)
        check_rows(len(table), title)
        if not len(table) and not may_be_empty:
            raise DataError(f"{title} has no rows.")
    else:
        table = CsvTable(_text(path, title), title, may_be_empty)
    if twice := sorted(name for name, count in Counter(table.names).items() if count > 1):
        raise DataError(f"{title} has more than one column {twice[0]!r}. Rename them.")
    return table


def check_rows(rows: int, title: str) -> None:
    """Refuse a table of more rows than fit into memory, where some numbers are kept of each."""
    check_memory(ROW_COST * rows, f"{title} has {rows:,} rows", "Save fewer of them.")


def _text(path: Path | RemoteFile, title: str) -> str:
    try:
        if isinstance(path, RemoteFile):
            return path.read_bytes().decode("utf-8-sig")
        needed = CSV_COST * path.stat().st_size
        check_memory(needed, f"{title} is read into memory", "Save it as .parquet, which is read in parts.")
        return read_regular(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{title} cannot be read: {error}.") from error
    except ValueError as error:  # which begins with the path
        raise DataError(f"The table {error}.") from error


def coded(column: Column, codes: Mapping[str, T], where: str) -> NDArray:
    """Return the code of every word of a column. An error counts the words that have none."""
    words = Words.of(column.words)
    if len(unknown := words.rows(lambda word: word not in codes)):
        raise DataError(
            f"{len(unknown):,} of {len(words):,} values of {column.name!r} in {where} are none of {', '.join(codes)}, "
            f"such as {words[unknown[0]]!r} of sample {unknown[0] + 1}. Bring the original file."
        )
    return np.array([codes[word] for word in words.values])[words.codes]


class CsvTable(TableFile):
    """Reads the table in the text of a CSV file."""

    def __init__(self, text: str, title: str, may_be_empty: bool = False) -> None:
        self.title = title
        try:
            reader = csv.reader(io.StringIO(text, newline=""), strict=True)
            self.names = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise DataError(f"{title} cannot be read: {error}.") from error
        if not rows and not (may_be_empty and self.names):
            raise DataError(f"{title} has no lines below its head.")
        if uneven := [line for line, row in rows if len(row) != len(self.names)]:
            raise DataError(
                f"{title} has {len(uneven):,} lines with more or fewer cells than its head, which has "
                f"{len(self.names)}; the first is line {uneven[0]:,}. Is a comma within a cell not in quotes, or is "
                "the file cut?"
            )
        self._rows = len(rows)
        self._columns = dict(zip(self.names, zip(*(row for _, row in rows), strict=True), strict=False))

    def __len__(self) -> int:
        return self._rows

    def words(self, name: str) -> Words:
        return Words.of(self._columns.get(name, ()))

    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        yield [self.numbers(name)[:, None] for name in names]

    def numbers(self, name: str) -> NDArray[Any]:
        column = self._columns[name]
        try:
            return np.array([word.strip() or "nan" for word in column]).astype(np.float64)
        except ValueError:
            wrong = [word for word in column if not _is_number(word)]
            raise DataError(
                f"{len(wrong):,} of {len(column):,} values of the column {name!r} are no numbers, such as {wrong[0]!r}."
            ) from None


class ParquetTable(TableFile):
    """Reads the table in a Parquet file: a column when it is asked for, or some rows at a time."""

    def __init__(self, path: Path | RemoteFile, title: str) -> None:
        self.title, self.path = title, path
        self.file = open_parquet(path, by_codes=True)
        self.names: list[str] = self.file.schema_arrow.names

    def __len__(self) -> int:
        return self.file.metadata.num_rows

    def kind(self, name: str) -> str:
        return _kind(self.file.schema_arrow.field(name).type)

    def words(self, name: str) -> Words:
        from pyarrow import ArrowException

        try:
            words = Words.join(_words(batch.column(0)) for batch in self._batches([name], WORD_ROWS))
            self._check_rows(name, len(words))
            return words
        except UnicodeDecodeError as error:
            raise DataError(f"The column {name!r} of {_lower(self.title)} is no text in UTF-8: {error}.") from error
        except (IndexError, ArrowException) as error:
            raise DataError(f"{self.title} is damaged: {error}, in the column {name!r}. Bring it again.") from error

    def numbers(self, name: str) -> NDArray[Any]:
        parts = [_flat(batch.column(0), name) for batch in self._batches([name], WORD_ROWS)]
        self._check_rows(name, sum(map(len, parts)))
        return np.concatenate(parts) if parts else np.zeros(0)

    def _check_rows(self, name: str, found: int) -> None:
        """Refuse a column that has more or fewer values than the file says it has rows."""
        if found != len(self):
            raise DataError(
                f"{self.title} is damaged: the column {name!r} has {found:,} values, and the file says that it has "
                f"{len(self):,} rows. Bring it again."
            )

    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        for batch in self._batches(names, BLOCK_ROWS):
            yield [_matrix(batch.column(name), name) for name in names]

    def _batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Read columns `rows` at a time, or fewer where a row has many values."""
        from pyarrow import ArrowException, default_memory_pool

        done = 0
        try:
            if (width := self._width(names)) > BLOCK_VALUES:
                raise DataError(
                    f"{self.title} has {width:,} values in a row of {names[0]!r}{' and others' if names[1:] else ''}, "
                    f"and at most {BLOCK_VALUES:,} are read."
                )
            for batch in self.file.iter_batches(max(1, min(rows, BLOCK_VALUES // width)), columns=list(names)):
                yield batch
                done += len(batch)
        except (OSError, ArrowException) as error:
            if no_list := re.search(NO_LIST, str(error)):
                raise DataError(
                    f"{self.title} has a row without a list in {', '.join(map(repr, names[:SHOWN]))}, near row "
                    f"{done + int(no_list[1]):,} (counted from 1), and a column of lists of a fixed size cannot be "
                    "read with such a row. Remove the row, or write the column as lists of any size."
                ) from error
            raise DataError(f"{self.title} cannot be read: {error}. Bring it again.") from error
        finally:
            default_memory_pool().release_unused()  # which pyarrow would keep for the next file

    def _width(self, names: Sequence[str]) -> int:
        """Return how many values columns have in a row, in the row group where that is most; long bytes are many.

        Only of lists the metadata of a column is asked: pyarrow ends the process where that is damaged in some ways.
        """
        metadata, schema, wanted = self.file.metadata, self.file.schema, set(names)
        leaves = [schema.column(i) for i in range(metadata.num_columns)]
        cost = {i: -(-leaf.length // 8) or 1 for i, leaf in enumerate(leaves) if _top(leaf.path, wanted)}
        widest = 1
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            rows = group.num_rows
            counts = {i: group.column(i).num_values if leaves[i].max_repetition_level else rows for i in cost}
            widest = max(widest, -(-sum(cost[i] * counts[i] for i in cost) // max(1, rows)))
        return widest


class ShardedTable(TableFile):
    """Reads the table in the Parquet shards of a benchmark, as Hugging Face lays them out: a row an image.

    Shards are called `data/train-00000-of-00002.parquet` or `default/train/0000.parquet`. The word for their split is
    in that name.
    """

    def __init__(self, root: Path, title: str, wanted: Sequence[str]) -> None:
        self.title, self.names = title, list(wanted)
        shards = find_shards(root)
        self._shards = {name: ParquetTable(path, repr(str(path))) for name, path in shards.items()}
        check_rows(len(self), title)
        _check_copies(shards)
        for shard in self._shards.values():
            shard.check_columns([*wanted, IMAGE])
            check_images(shard.file, shard.title)

    def __len__(self) -> int:
        return sum(map(len, self._shards.values()))

    def words(self, name: str) -> Words:
        return Words.join(shard.words(name) for shard in self._shards.values())

    def numbers(self, name: str) -> NDArray[Any]:
        return np.concatenate([shard.numbers(name) for shard in self._shards.values()])

    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        for shard in self._shards.values():
            yield from shard.blocks(names)

    def shared_names(self) -> list[str]:
        """Return the columns that every shard has, in the order of the first."""
        first, *others = (shard.names for shard in self._shards.values())
        return [name for name in first if all(name in names for names in others)]

    def files(self) -> list[str]:
        """Return the name of every row."""
        return [row_name(name, row) for name, shard in self._shards.items() for row in range(len(shard))]

    def split_words(self) -> Words:
        """Return, for every row, the word for its split."""
        words = ([split_word(PurePosixPath(name))] * len(shard) for name, shard in self._shards.items())
        return Words.of(word for shard in words for word in shard)


def _check_copies(shards: Mapping[str, Path]) -> None:
    """Refuse the shards of one split in two folders, and shards with the same bytes: every image would count twice."""
    homes: dict[str, Path] = {}
    for shard, path in shards.items():
        word = split_word(PurePosixPath(shard))
        split = WORDS.get(word.lower(), word)
        if (home := homes.setdefault(split, path.parent)) != path.parent:
            raise DataError(
                f"Parquet files of the split {split!r} lie in {str(home)!r} and in {str(path.parent)!r}: two copies of "
                "the same images? Keep one folder, and move the other elsewhere."
            )
    check_different(shards.values())


def check_different(shards: Iterable[Path]) -> None:
    """Refuse files with the same bytes: every image would count twice."""
    sizes = {path: path.stat().st_size for path in shards}
    often, seen = Counter(sizes.values()), {}
    for path in (path for path, size in sizes.items() if often[size] > 1):
        with path.open("rb") as file:
            twin = seen.setdefault(hashlib.file_digest(file, "sha256").digest(), path)
        if twin != path:
            raise DataError(
                f"The Parquet files {str(twin)!r} and {str(path)!r} are the same: their images would count twice. "
                "Keep one of them."
            )


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def split_word(shard: PurePosixPath) -> str:
    """Return the word for a split in the name of a shard, or of its folder."""
    word = shard.name.removesuffix(".parquet").partition("-")[0]
    return word if word.lower() in WORDS or len(shard.parts) < 2 else shard.parts[-2]


def _kind(kind: Any) -> str:
    """Return in words what an Arrow type holds."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"lists of {_kind(kind.value_type)}"
    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if str(kind) in ("string", "large_string", "string_view"):
        return "text"
    if types.is_integer(kind):
        return "whole numbers"
    if types.is_floating(kind):
        return FLOAT16 if types.is_float16(kind) else "floats"
    return BYTES if holds_bytes(kind) else str(kind)


def _words(column: Any) -> Words:
    """Return an Arrow column as words, in the order of the rows; nulls and NaN are empty.

    An IndexError, or an error of Arrow, says that a code stands for no word: Arrow itself would read beyond the words.
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_nested(column.type):
        column.validate(full=True)
        return Words.of(_word(value.as_py()) for value in column)  # one by one: equal words are kept once
    coded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    null = len(coded.dictionary)
    known = coded.indices.drop_null().to_numpy()
    if len(known) and not 0 <= known.min() <= known.max() < null:
        raise IndexError("a code stands for no word")
    codes = coded.indices.cast("int64").fill_null(null).to_numpy()
    row = np.full(null + 1, -1)  # the first that has each word; -1: none has it
    row[codes[::-1]] = np.arange(len(codes))[::-1]
    present = np.flatnonzero(row >= 0)
    present = present[np.argsort(row[present])]
    place = np.zeros(null + 1, dtype=np.int32)
    place[present] = np.arange(len(present))
    values = coded.dictionary.take(pa.array(present, mask=present == null))
    words = Words.of(_word(value) for value in values.to_pylist())
    return Words(words.values, words.codes[place[codes]])


def _top(path: str, names: set[str]) -> bool:
    """Say whether the path of a leaf of a Parquet file, such as `embedding.list.element`, is in one of the columns."""
    return path in names or any(path[: dot.start()] in names for dot in re.finditer(r"\.", path))


def _word(value: Any) -> str:
    return "" if value is None or str(value) == "nan" else str(value)


def _matrix(column: Any, name: str) -> NDArray[Any]:
    """Return an Arrow column of numbers as (rows, 1), or of lists of numbers of one length as (rows, length).

    What is missing is NaN: a number, or a list.
    """
    import pyarrow.compute

    compute: Any = pyarrow.compute  # its functions are made when it is imported
    if not _kind(column.type).startswith("lists of"):
        return _flat(column, name)[:, None]
    filled = column.drop_null()
    lengths = compute.unique(compute.list_value_length(filled)).to_pylist() or [None]
    if len(lengths) != 1 or not lengths[0]:
        raise DataError(
            f"The lists of the column {name!r} have the lengths "
            f"{', '.join('none at all' if length is None else str(length) for length in lengths[:5])}"
            f"{' and more' if len(lengths) > 5 else ''}: every sample needs as many numbers, and at least one."
        )
    numbers = _flat(filled.flatten(), name).reshape(len(filled), -1)
    if not column.null_count:
        return numbers
    matrix = np.full(
        (len(column), numbers.shape[1]), np.nan, numbers.dtype if numbers.dtype.kind == "f" else np.float64
    )
    matrix[column.is_valid().to_numpy(zero_copy_only=False)] = numbers
    return matrix


def _flat(column: Any, name: str) -> NDArray[Any]:
    """Return the numbers of an Arrow column; nulls are NaN."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        held = kind.value_type if pa.types.is_dictionary(kind) else kind
        raise DataError(f"The column {name!r} holds {held}, not numbers.")
    if column.null_count:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return column.to_numpy(zero_copy_only=False)


def _is_number(word: str) -> bool:
    try:
        float(word.strip() or "nan")
    except ValueError:
        return False
    return True
