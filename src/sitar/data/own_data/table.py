"""Your own images from a table: a CSV or Parquet file with a path and a label for each, and optionally more.

Columns: `path` (below data.root), `label`; where they are named, a split (train, val, test), an attribute (the
shortcut, for evaluation by group) and a column to split by (`split_by: patient_id`), whose values stay on one side.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from sitar.config import Config
from sitar.data.from_columns import Column, Columns, filled, sample_table_from_columns
from sitar.data.image_dataset import ImageDataset, ShortcutConfig
from sitar.data.sample_table import SampleTable, names
from sitar.data.severity import with_severity
from sitar.data.splitting import SplitConfig
from sitar.data.tables import SUFFIXES, TableFile, check_columns, open_table
from sitar.errors import DataError
from sitar.images.files import Files, check_paths
from sitar.registry import DATASETS


class ColumnsConfig(Config):
    """Which column of a table says what."""

    label_column: str = Field(default="label", description="column with the classes")
    split_column: str | None = Field(default=None, description="column with train, val or test; null: a split is made")
    attribute_column: str | None = Field(default=None, description="column with the shortcut, for groups")
    split_by: str | None = Field(default=None, description="column whose values stay on one side, such as patient_id")

    @property
    def named(self) -> list[str]:
        """Every column that is asked for."""
        columns = (self.label_column, self.split_column, self.attribute_column, self.split_by)
        return [column for column in columns if column is not None]


class TableConfig(SplitConfig, ShortcutConfig, ColumnsConfig):
    name: Literal["table"] = "table"
    table: str | None = Field(
        default=None,
        description="the .csv or .parquet file, below data.root or else below the working folder; null: the only such "
        "file in data.root",
    )
    path_column: str = Field(default="path", description="column with the image files, below data.root")


@DATASETS.register("table")
class TableOfImages(ImageDataset):
    Config = TableConfig
    title = "A table of yours"
    layout = "a .csv or .parquet file with the columns path and label, and the images that it names"
    licence = "yours"

    @classmethod
    def samples(cls, config: TableConfig) -> SampleTable:
        table = open_table(_file(cls.root(config), config))
        check_columns(table, [config.path_column, *config.named])
        files = check_paths(filled(Column(config.path_column, table.words(config.path_column))), "the table")
        samples = sample_table_from_columns(names(files), columns_of(table, config), config)
        return with_severity(samples, config)

    @classmethod
    def val_share(cls, config: TableConfig) -> float:
        return config.val_share

    @classmethod
    def files(cls, config: TableConfig) -> Files:
        return Files([cls.root(config)])


def columns_of(table: TableFile, config: ColumnsConfig) -> Columns:
    """What a table says of its samples, by the settings that name its columns."""

    def column(name: str | None) -> Column | None:
        return None if name is None else Column(name, table.words(name))

    label = Column(config.label_column, table.words(config.label_column))
    return Columns(label, column(config.split_column), column(config.attribute_column), column(config.split_by))


def _file(root: Path, config: TableConfig) -> Path:
    if config.table is not None:
        given = Path(config.table).expanduser()
        for path in (root / given, given):  # the same where it is absolute
            if path.exists():
                return path
        raise DataError(
            f"There is no table {config.table!r}, neither below data.root {str(root)!r} nor below the working folder "
            f"{os.getcwd()!r}."
        )
    found = sorted(path for path in root.iterdir() if path.suffix.lower() in SUFFIXES)
    if len(found) != 1:
        raise DataError(f"{str(root)!r} has {len(found)} .csv or .parquet files. Name the one with data.table.")
    return found[0]
