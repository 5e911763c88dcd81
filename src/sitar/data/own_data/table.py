"""Your own images are listed in a table: a CSV or Parquet file with a path and a label for each, and optionally more.

The columns are `path` (below data.root) and `label`. Settings may name more of them: a split (train, val, test), an
attribute (the shortcut, for evaluation by group), and a column to split by (`split_by: patient_id`). All samples with
one value of the latter stay on one side. A table may lie in many files. Those of Parquet may hold the images
themselves, in a column `image`, and need no paths.
"""

from __future__ import annotations

import os
from glob import has_magic
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sitar.data.base import Metadata
from sitar.data.from_columns import ColumnsConfig, filled, other_columns, sample_columns, sample_table_from_columns
from sitar.data.image_shards import ImageShards, holds_images
from sitar.data.own_data.own_images import OwnImages, OwnImagesConfig
from sitar.data.sample_table import SampleTable, names
from sitar.data.severity import with_severity
from sitar.data.shards import find_files, open_tables
from sitar.data.tables import SUFFIXES, Column, TableFile, open_table
from sitar.errors import ConfigError, DataError
from sitar.files import user_path
from sitar.images.files import Files, check_paths
from sitar.images.parquet import IMAGE, find_shards
from sitar.registry import DATASETS

CSV, PARQUET = SUFFIXES


class TableConfig(OwnImagesConfig, ColumnsConfig):
    name: Literal["table"] = "table"
    table: str | None = Field(
        default=None,
        description="the .csv or .parquet file, below data.root or else below the working folder, or many: a folder, a "
        "pattern such as parts/*.parquet, or a URL; null: the only such file in data.root, or its files with images",
    )
    path_column: str = Field(default="path", description="column with the image files, below data.root")
    image_column: str = Field(
        default=IMAGE, description="column of Parquet files with the images themselves, which then need no paths"
    )


@DATASETS.register("table")
class TableOfImages(OwnImages):
    Config = TableConfig
    title = "A table of yours"
    layout = (
        "a .csv or .parquet file with the columns path and label, and the images that it names, or .parquet files with "
        "the columns image and label"
    )

    @classmethod
    def samples(cls, config: TableConfig) -> SampleTable:
        table, files = cls._table(config)
        samples = sample_table_from_columns(names(files), sample_columns(table, config), config)
        return with_severity(samples, config)

    @classmethod
    def files(cls, config: Any) -> Files:
        given = cls._given(config)
        if not given.lower().endswith(CSV) and holds_images(table := open_tables(given), config.image_column):
            return ImageShards(table, config.image_column).files()
        return super().files(config)

    @classmethod
    def metadata(cls, config: TableConfig) -> Metadata:
        table, files = cls._table(config)
        images = table.columns_of_images() if isinstance(table, ImageShards) else []
        return Metadata(files, other_columns(table, config, [config.path_column, *images]))

    @classmethod
    def _table(cls, config: TableConfig) -> tuple[TableFile, list[str]]:
        """Open the table, and return it with the file, or the row of a file, that has the image of each row."""
        table = open_tables(cls._given(config))
        if holds_images(table, config.image_column):
            shards = ImageShards(table, config.image_column)
            shards.check_columns(config.named, config.settings)
            if pictures := [name for name in config.named if holds_images(table, name)]:
                raise ConfigError(f"The column {pictures[0]!r} holds images, and says nothing else of a sample.")
            return shards, shards.rows()
        cls.root(config)
        _check_image_column(table, config)
        settings = {config.path_column: "data.path_column"} | config.settings
        table.check_columns(list(settings), settings)
        words = filled(Column(config.path_column, table.words(config.path_column)))
        return table, check_paths(list(words), "the table")

    @classmethod
    def _given(cls, config: TableConfig) -> str:
        """Return what the settings name: a file, a folder of files, a pattern or a URL."""
        if config.table is None:
            return str(_only_table(cls.root(config), config))
        if "://" in config.table:
            return config.table
        root = None if config.root is None else cls.root(config)
        given = user_path(config.table)
        for path in (given,) if root is None else (root / given, given):  # the same where it is absolute
            if path.exists() or (has_magic(config.table) and find_files(str(path))):
                return str(path)
        below = "" if root is None else f"neither below data.root {str(root)!r} nor "
        raise DataError(f"There is no table {config.table!r}, {below}below the working folder {os.getcwd()!r}.")


def has_shards(folder: Path, config: TableConfig) -> bool:
    """Say whether the tables in a folder are Parquet files that hold the images themselves."""
    tables = _tables(folder)
    if any(path.suffix.lower() != PARQUET for path in tables):
        return False
    first = next(iter(tables or _shards_below(folder)), None)
    return first is not None and holds_images(open_table(first, may_be_empty=True), config.image_column)


def _shards_below(folder: Path) -> list[Path]:
    """Return the Parquet files in folders of a folder, if no image lies beside them: else they are something else."""
    return [] if Files([folder]).names() else list(find_shards(folder).values())


def _only_table(root: Path, config: TableConfig) -> Path:
    """Return the only table in a folder, or the folder itself where Parquet files in it hold the images."""
    if has_shards(root, config):
        return root
    tables = _tables(root)
    if len(tables) != 1:
        raise DataError(f"{str(root)!r} has {len(tables)} .csv or .parquet files. Name the one with data.table.")
    return tables[0]


def _tables(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _check_image_column(table: TableFile, config: TableConfig) -> None:
    """Say how to name a column of images, where a table has one and no paths."""
    if config.path_column not in table.names and (held := [name for name in table.names if holds_images(table, name)]):
        raise DataError(
            f"{table.title} has no column {config.image_column!r} with images, and no column {config.path_column!r} "
            f"with their paths. It has images in {', '.join(map(repr, held))}: --set data.image_column={held[0]}."
        )
