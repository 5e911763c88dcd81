"""Your own features lie in a table: a CSV or Parquet file, or many, with a row of numbers and a label for each sample.

The numbers lie in one column of lists (Parquet: `embedding`), or in a column each (`feature_columns: "f*"`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sitar.data.array_dataset import ArrayConfig, ArrayDataset
from sitar.data.base import Metadata, Prepared
from sitar.data.feature_cache import CachedFeatures, cached_features, feature_blocks, kind_of
from sitar.data.from_columns import ColumnsConfig, other_columns, sample_columns, sample_table_from_columns
from sitar.data.sample_table import SampleTable
from sitar.data.severity import with_severity
from sitar.data.shards import Shards, find_tables, open_tables
from sitar.data.tables import TableFile
from sitar.data.types import Data
from sitar.errors import ConfigError, DataError
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS


class FeaturesConfig(ArrayConfig, ColumnsConfig):
    name: Literal["features"] = "features"
    file: str | None = Field(
        default=None, description="the table: a file, a folder of files, a pattern such as parts/*.parquet, or a URL"
    )
    feature_columns: str | tuple[str, ...] = Field(
        default="embedding",
        min_length=1,
        description="column of lists of numbers, or columns of numbers; * stands for any letters",
    )
    dtype: Literal["float16", "float32"] | None = Field(
        default=None, description="type that features are kept in; null: float16 where the table has it, else float32"
    )


@DATASETS.register("features")
class Features(ArrayDataset):
    Config = FeaturesConfig
    title = "A table of features of yours"
    layout = (
        "a .csv or .parquet file, or a folder of them, with columns of numbers, or one of lists of numbers, and a "
        "column label"
    )

    @classmethod
    def samples(cls, config: FeaturesConfig) -> SampleTable:
        """Read what the table says of its samples. Its features are not read."""
        table = cls._table(config)
        _feature_names(table, config)
        return cls._samples(table, config)

    @classmethod
    def load(cls, config: FeaturesConfig, watch: Watch = unwatched) -> Data:
        table = cls._table(config)
        samples = cls._samples(table, config)
        features = cls._features(table, config, watch)
        return samples.to_data(features.array, features.checksum, samples.files, features.sums)

    @classmethod
    def prepare(cls, config: FeaturesConfig, watch: Watch = unwatched) -> Prepared:
        """Read the features into the cache. Nothing is downloaded but what a URL names."""
        table = cls._table(config)
        samples = cls._samples(table, config)
        cls._features(table, config, watch)
        return Prepared(samples)

    @classmethod
    def metadata(cls, config: FeaturesConfig) -> Metadata:
        table = cls._table(config)
        return Metadata(range(len(table)), other_columns(table, config, _feature_names(table, config)))

    @classmethod
    def _table(cls, config: FeaturesConfig) -> TableFile:
        if config.file is None:
            raise DataError(f"{cls.title} needs data.file: {cls.layout}.")
        table = open_tables(config.file)
        table.check_columns(config.named, config.settings)
        return table

    @classmethod
    def _samples(cls, table: TableFile, config: FeaturesConfig) -> SampleTable:
        samples = sample_table_from_columns(np.arange(len(table)), sample_columns(table, config), config)
        return with_severity(samples, config)

    @classmethod
    def _features(cls, table: TableFile, config: FeaturesConfig, watch: Watch) -> CachedFeatures:
        files = table.files if isinstance(table, Shards) else find_tables(str(config.file))
        tell = watch(f"{cls.title}: rows read", len(table))
        return cached_features(files, table, _feature_names(table, config), config.dtype, tell)


def read_features(table: TableFile, config: FeaturesConfig) -> NDArray[Any]:
    """Read the features of every row of a table into memory. It may have labels or none."""
    return np.concatenate(list(features_by_blocks(table, config)))


def features_by_blocks(table: TableFile, config: FeaturesConfig) -> Iterator[NDArray[Any]]:
    """Read the features of a table some rows at a time, in the type that a run keeps them in."""
    names = _feature_names(table, config)
    kind = kind_of(table, names, config.dtype)
    for part in table.parts():
        yield from feature_blocks(part, names, kind)


def _feature_names(table: TableFile, config: FeaturesConfig) -> list[str]:
    """List the columns that hold features."""
    asked = config.feature_columns
    patterns = [asked] if isinstance(asked, str) else list(asked)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        others = [name for name in table.names if name not in config.named and not _is_row_number(name)]
        matching = [name for name in others if fnmatchcase(name, pattern)]
        if pattern in config.named:
            raise ConfigError(f"data.feature_columns names {pattern!r}, which is no feature: it says what samples are.")
        if not matching:
            raise DataError(
                f"{table.title} has no column {pattern!r} for features. Name them with "
                f"data.feature_columns, one, a list, or a pattern such as 'f*'. It has: {', '.join(table.names)}."
            )
        chosen |= dict.fromkeys(matching)
    return list(chosen)


def _is_row_number(name: str) -> bool:
    """Return whether pandas has added a column.

    A pattern never means such a column, and the number of a row gives the label away if rows are sorted.
    """
    return name == "" or name.startswith(("Unnamed:", "__index_level_"))
