"""Your own features lie in a table: a CSV or Parquet file, or many, with a row of numbers and a label for each sample.

The numbers lie in one column of lists (Parquet: `embedding`), or in a column each (`feature_columns: "f*"`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
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

logger = logging.getLogger(__name__)
SHOWN = 3  # columns that are named


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

    @property
    def patterns(self) -> list[str]:
        """Return every name or pattern of columns of features."""
        return [self.feature_columns] if isinstance(self.feature_columns, str) else list(self.feature_columns)


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
        data = samples.to_data(features.array, features.checksum, samples.files, features.sums)
        return replace(data, feature_columns=tuple(_feature_names(table, config)))

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


def read_features(table: TableFile, config: FeaturesConfig, known: Sequence[str] = ()) -> NDArray[Any]:
    """Read the features of every row of a table into memory. It may have labels or none."""
    names = input_columns(table, config, known)
    kind = kind_of(table, names, config.dtype)
    return np.concatenate([block for part in table.parts() for block in feature_blocks(part, names, kind)])


def input_columns(table: TableFile, config: FeaturesConfig, known: Sequence[str]) -> list[str]:
    """Return the columns of a new table that an input of a model is made of, in the order of the training data.

    They are `known` by name, but for runs of early releases: there the settings are matched with the new table.
    """
    if not known:
        names = _feature_names(table, config)
        if len(names) > 1 and len(names) > len(config.patterns):
            logger.warning(
                "This run does not say in which order its columns of features were. They are taken in the order of the "
                "new table: if it was another one, predictions are wrong. Train the run again to be sure."
            )
        return names
    if missing := [name for name in known if name not in table.names]:
        more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        raise DataError(
            f"{table.title} has no column {', '.join(map(repr, missing[:SHOWN]))}{more} of features, which the "
            f"training data has. Name the columns as there. It has: {', '.join(table.names)}."
        )
    return list(known)


def has_features(table: TableFile, config: FeaturesConfig) -> bool:
    """Say whether a table has a column for every name or pattern of features."""
    return all(_matching(table, config, pattern) for pattern in config.patterns)


def _matching(table: TableFile, config: FeaturesConfig, pattern: str) -> list[str]:
    """Return the column that is called so, or else those that fit a pattern."""
    others = [name for name in table.names if name not in config.named and not _is_row_number(name)]
    return [pattern] if pattern in others else [name for name in others if fnmatchcase(name, pattern)]


def _feature_names(table: TableFile, config: FeaturesConfig) -> list[str]:
    """List the columns that hold features."""
    chosen: dict[str, None] = {}
    for pattern in config.patterns:
        matching = _matching(table, config, pattern)
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
