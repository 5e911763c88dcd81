"""Columns of a CSV or a Parquet file, as words or as numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sitar.errors import ConfigError, DataError
from sitar.images.parquet import MISSING
from sitar.registry import did_you_mean

SUFFIXES = (".csv", ".parquet")


class TableFile(Protocol):
    """A file with named columns."""

    path: Path
    names: list[str]

    def words(self, name: str) -> list[str]:
        """A column as text; what is missing is empty."""
        ...

    def numbers(self, name: str) -> NDArray[Any]:
        """A column of numbers (n,), or of lists of numbers of one length (n, length); what is missing is NaN."""
        ...


def open_table(path: Path) -> TableFile:
    """The table in a file, by the end of its name."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"The table {str(path)!r} is neither .csv nor .parquet, which are the kinds that are read.")
    table = ParquetFile(path) if path.suffix.lower() == ".parquet" else CsvFile(path)
    if twice := sorted({name for name in table.names if table.names.count(name) > 1}):
        raise DataError(f"The table {str(path)!r} has more than one column {twice[0]!r}. Rename them.")
    return table


def check_columns(table: TableFile, wanted: Sequence[str]) -> None:
    """Refuse a table that lacks a column."""
    if missing := [name for name in wanted if name not in table.names]:
        raise DataError(
            f"The table {str(table.path)!r} has no column {missing[0]!r}.{did_you_mean(missing[0], table.names)} "
            f"It has: {', '.join(table.names) or 'none'}."
        )


class CsvFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, strict=True)
                self.names = next(reader, [])
                rows = [(reader.line_num, row) for row in reader if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"The table {str(path)!r} cannot be read: {error}.") from error
        if not rows:
            raise DataError(f"The table {str(path)!r} has no lines below its head.")
        if uneven := [line for line, row in rows if len(row) != len(self.names)]:
            raise DataError(
                f"{len(uneven):,} lines of {str(path)!r} have more or fewer cells than its head, which has "
                f"{len(self.names)}; the first is line {uneven[0]:,}. Is a comma within a cell not in quotes?"
            )
        self._columns = dict(zip(self.names, zip(*(row for _, row in rows), strict=True), strict=False))

    def words(self, name: str) -> list[str]:
        return list(self._columns[name])

    def numbers(self, name: str) -> NDArray[Any]:
        column = self._columns[name]
        try:
            return np.array([word.strip() or "nan" for word in column]).astype(np.float64)
        except ValueError:
            wrong = [word for word in column if not _is_number(word)]
            raise DataError(
                f"{len(wrong):,} of {len(column):,} values of the column {name!r} are no numbers, such as {wrong[0]!r}."
            ) from None


class ParquetFile:
    def __init__(self, path: Path) -> None:
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import read_schema
        except ImportError as error:
            raise ConfigError(MISSING.format(error)) from error
        self.path = path
        try:
            self.names: list[str] = read_schema(path).names
        except (OSError, ArrowException) as error:
            raise DataError(f"The table {str(path)!r} cannot be read: {error}.") from error

    def words(self, name: str) -> list[str]:
        return ["" if value is None or str(value) == "nan" else str(value) for value in self._column(name).to_pylist()]

    def numbers(self, name: str) -> NDArray[Any]:
        import pyarrow as pa
        import pyarrow.compute

        compute: Any = pyarrow.compute  # its functions are made when it is imported
        column = self._column(name)
        kind = column.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            return _to_numbers(column, name)
        lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        if len(lengths) != 1 or not lengths[0]:
            raise DataError(
                f"The lists of the column {name!r} have the lengths "
                f"{', '.join('none at all' if length is None else str(length) for length in lengths[:5])}"
                f"{' and more' if len(lengths) > 5 else ''}: every sample needs as many numbers, and at least one."
            )
        return _to_numbers(compute.list_flatten(column), name).reshape(len(column), lengths[0])

    def _column(self, name: str) -> Any:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table

        try:
            column = read_table(self.path, columns=[name]).column(0)
        except (OSError, ArrowException) as error:
            raise DataError(f"The table {str(self.path)!r} cannot be read: {error}.") from error
        if not len(column):
            raise DataError(f"The table {str(self.path)!r} has no rows.")
        return column


def _to_numbers(column: Any, name: str) -> NDArray[Any]:
    """Numbers of an Arrow column; nulls are NaN."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"The column {name!r} holds {kind}, not numbers.")
    if column.null_count:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return column.to_numpy(zero_copy_only=False)


def _is_number(word: str) -> bool:
    try:
        float(word.strip() or "nan")
    except ValueError:
        return False
    return True
