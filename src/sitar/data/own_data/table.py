"""Your own images are listed in a table: a CSV or Parquet file with a path and a label for each, and optionally more.

The columns are `path` (below data.root) and `label`. Settings may name more of them: a split (train, val, test), an
attribute (the shortcut, for evaluation by group), and a column to split by (`split_by: patient_id`). All samples with
one value of the latter stay on one side.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from sitar.data.base import Metadata
from sitar.data.from_columns import ColumnsConfig, filled, other_columns, sample_columns, sample_table_from_columns
from sitar.data.own_data.own_images import OwnImages, OwnImagesConfig
from sitar.data.sample_table import SampleTable, names
from sitar.data.severity import with_severity
from sitar.data.tables import SUFFIXES, Column, TableFile, open_table
from sitar.errors import DataError
from sitar.files import user_path
from sitar.images.files import check_paths
from sitar.registry import DATASETS


class TableConfig(OwnImagesConfig, ColumnsConfig):
    name: Literal["table"] = "table"
    table: str | None = Field(
        default=None,
        description="the .csv or .parquet file, below data.root or else below the working folder; null: the only such "
        "file in data.root",
    )
    path_column: str = Field(default="path", description="column with the image files, below data.root")


@DATASETS.register("table")
class TableOfImages(OwnImages):
    Config = TableConfig
    title = "A table of yours"
    layout = "a .csv or .parquet file with the columns path and label, and the images that it names"

    @classmethod
    def samples(cls, config: TableConfig) -> SampleTable:
        table, files = cls._table(config)
        samples = sample_table_from_columns(names(files), sample_columns(table, config), config)
        return with_severity(samples, config)

    @classmethod
    def metadata(cls, config: TableConfig) -> Metadata:
        table, files = cls._table(config)
        return Metadata(files, other_columns(table, config, [config.path_column]))

    @classmethod
    def _table(cls, config: TableConfig) -> tuple[TableFile, list[str]]:
        """Open the table, and return it with the file that each row names."""
        table = open_table(_file(cls.root(config), config))
        table.check_columns([config.path_column, *config.named])
        words = filled(Column(config.path_column, table.words(config.path_column)))
        return table, check_paths(list(words), "the table")


def _file(root: Path, config: TableConfig) -> Path:
    if config.table is not None:
        given = user_path(config.table)
        for path in (root / given, given):  # the same where it is absolute
            if path.exists():
                return path
        raise DataError(
            f"There is no table {config.table!r}, neither below data.root {str(root)!r} nor below the working folder "
            f"{os.getcwd()!r}."
        )
    tables = sorted(path for path in root.iterdir() if path.suffix.lower() in SUFFIXES)
    if len(tables) != 1:
        raise DataError(f"{str(root)!r} has {len(tables)} .csv or .parquet files. Name the one with data.table.")
    return tables[0]
