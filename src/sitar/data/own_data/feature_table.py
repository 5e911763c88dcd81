"""Your own features lie in a table: a CSV or Parquet file with a row of numbers and a label for each sample.

The numbers lie in one column of lists (Parquet: `embedding`), or in a column each (`feature_columns: "f*"`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sitar.data.array_dataset import ArrayConfig, ArrayDataset, as_features
from sitar.data.base import Metadata
from sitar.data.from_columns import ColumnsConfig, SampleColumns, other_columns, sample_columns
from sitar.data.tables import TableFile, open_table
from sitar.errors import ConfigError, DataError
from sitar.registry import DATASETS


class FeaturesConfig(ArrayConfig, ColumnsConfig):
    name: Literal["features"] = "features"
    feature_columns: str | tuple[str, ...] = Field(
        default="embedding",
        min_length=1,
        description="column of lists of numbers, or columns of numbers; * stands for any letters",
    )


@DATASETS.register("features")
class Features(ArrayDataset):
    Config = FeaturesConfig
    title = "A table of features of yours"
    layout = "a .csv or .parquet file with columns of numbers, or one of lists of numbers, and a column label"

    @classmethod
    def read(cls, path: Path, config: FeaturesConfig) -> tuple[NDArray[Any], SampleColumns]:
        table = open_table(path)
        table.check_columns(config.named)
        return read_features(table, config), sample_columns(table, config)

    @classmethod
    def metadata(cls, config: FeaturesConfig) -> Metadata:
        table = open_table(cls._path(config))
        columns = other_columns(table, config, _feature_names(table, config))
        return Metadata(range(len(table.words(config.label_column))), columns)


def read_features(table: TableFile, config: FeaturesConfig) -> NDArray[np.float32]:
    """Read the features of every row of a table. It may have labels or none."""
    parts = [as_features(_as_columns(table.numbers(name)), name) for name in _feature_names(table, config)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


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


def _as_columns(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, None] if values.ndim == 1 else values


def _is_row_number(name: str) -> bool:
    """Return whether pandas has added a column.

    A pattern never means such a column, and the number of a row gives the label away if rows are sorted.
    """
    return name == "" or name.startswith(("Unnamed:", "__index_level_"))
