"""Your own images from a table: a CSV file with a path and a label for each, and optionally more.

Columns: `path` (below data.root), `label`; where they are named, a split (train, val, test), an attribute (the
shortcut, for evaluation by group) and a column to split by (`split_by: patient_id`), whose values stay on one side.
"""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from pydantic import Field

from sitar.data.folder import SplitConfig
from sitar.data.image_data import ImageDataset, ShortcutConfig, with_severity
from sitar.data.index import Index, larger_diagonal, names
from sitar.data.splitting import check_classes, check_leakage, random_split, split_words, with_val
from sitar.errors import DataError
from sitar.images.files import Files
from sitar.registry import DATASETS, did_you_mean


class TableConfig(SplitConfig, ShortcutConfig):
    name: Literal["table"] = "table"
    table: str | None = Field(default=None, description="the CSV file; null: the only .csv in data.root")
    path_column: str = Field(default="path", description="column with the image files, below data.root")
    label_column: str = Field(default="label", description="column with the classes")
    split_column: str | None = Field(default=None, description="column with train, val or test; null: a split is made")
    attribute_column: str | None = Field(default=None, description="column with the shortcut, for groups")
    split_by: str | None = Field(default=None, description="column whose values stay on one side, such as patient_id")


@DATASETS.register("table")
class Table(ImageDataset):
    Config = TableConfig
    title = "A table of yours"
    layout = "a .csv file with the columns path and label, and the images that it names"

    @classmethod
    def index(cls, config: TableConfig) -> Index:
        rows = _rows(_file(cls.root(config), config), config)
        files = [row[config.path_column] for row in rows]
        _check_paths(files)
        classes = sorted({row[config.label_column] for row in rows})
        check_classes(classes, len(rows))
        label = np.array([classes.index(row[config.label_column]) for row in rows])
        attribute, values = None, ()
        if config.attribute_column is not None:
            values = tuple(sorted({row[config.attribute_column] for row in rows}))
            attribute = np.array([values.index(row[config.attribute_column]) for row in rows])
        two = attribute is not None and len(classes) == len(values) == 2
        majority = larger_diagonal(label, attribute) if two and attribute is not None else frozenset()
        index = Index(
            names(files), label, _split(rows, label, config), tuple(classes),
            attribute, config.attribute_column or "", values, majority,
        )  # fmt: skip
        return with_severity(index, config)

    @classmethod
    def files(cls, config: TableConfig) -> Files:
        return Files([cls.root(config)])


def _file(root: Path, config: TableConfig) -> Path:
    if config.table is not None:
        return Path(config.table).expanduser()
    found = sorted(root.glob("*.csv"))
    if len(found) != 1:
        raise DataError(f"{str(root)!r} has {len(found)} .csv files. Name the one with data.table.")
    return found[0]


def _rows(path: Path, config: TableConfig) -> list[dict[str, str]]:
    """The lines of the table, each with a value in every column that is asked for."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns, rows = list(reader.fieldnames or []), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"The table {str(path)!r} cannot be read: {error}.") from error
    optional = (config.split_column, config.attribute_column, config.split_by)
    wanted = [config.path_column, config.label_column, *(column for column in optional if column is not None)]
    if missing := [column for column in wanted if column not in columns]:
        raise DataError(
            f"The table {str(path)!r} has no column {missing[0]!r}.{did_you_mean(missing[0], columns)} It has: "
            f"{', '.join(columns) or 'none'}."
        )
    if empty := [i for i, row in enumerate(rows, 2) if any(not (row[column] or "").strip() for column in wanted)]:
        raise DataError(
            f"{len(empty)} lines of {str(path)!r} lack a value in {', '.join(wanted)}, the first is line {empty[0]}."
        )
    if not rows:
        raise DataError(f"The table {str(path)!r} has no lines below its head.")
    return rows


def _check_paths(files: list[str]) -> None:
    """Refuse paths that leave the folder, and files that are named twice."""
    leaving = [file for file in files if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts]
    if leaving:
        raise DataError(
            f"{len(leaving)} paths lead out of data.root, such as {leaving[0]!r}. Give paths below it, without '..'."
        )
    seen: set[str] = set()
    if twice := [file for file in files if file in seen or seen.add(file)]:
        raise DataError(f"{len(twice)} files are in the table more than once, such as {twice[0]!r}.")


def _split(rows: list[dict[str, str]], label: np.ndarray, config: TableConfig) -> np.ndarray:
    by = None if config.split_by is None else names([row[config.split_by] for row in rows])
    if config.split_column is None:
        return random_split(label, by, config.val_share, config.test_share, config.seed)
    split = split_words([row[config.split_column] for row in rows], f"The column {config.split_column!r}")
    if by is not None:
        check_leakage(split, by, str(config.split_by))
    return with_val(label, split, by, config.val_share, config.seed)
