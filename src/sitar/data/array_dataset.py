"""Data sets whose samples, features or images, all lie in one file of yours share what stands here."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from sitar.data.base import DataConfig, Dataset
from sitar.data.from_columns import SampleColumns, sample_table_from_columns
from sitar.data.sample_table import SampleTable
from sitar.data.severity import SeverityConfig, with_severity
from sitar.data.splitting import SplitConfig
from sitar.data.types import Data
from sitar.errors import DataError
from sitar.files import user_path
from sitar.progress import Watch, unwatched

MOST_CHANNELS = 4  # of an axis that is taken for channels without being asked


class ArrayConfig(SplitConfig, SeverityConfig, DataConfig):
    """Says where the file lies."""

    file: str | None = Field(default=None, description="the file with all samples")


class ArrayDataset(Dataset):
    """Describes a data set in one file. A subclass reads all inputs, and what is said of each sample (`read`)."""

    setting = "file"
    licence = "yours"

    @classmethod
    def read(cls, path: Path, config: Any) -> tuple[NDArray[Any], SampleColumns]:
        """Read inputs, features (n, d) as float32 or images (n, channel, height, width), and what is said of them."""
        raise NotImplementedError

    @classmethod
    def samples(cls, config: Any) -> SampleTable:
        return cls._read(config)[1]

    @classmethod
    def val_share(cls, config: ArrayConfig) -> float:
        return config.val_share

    @classmethod
    def load(cls, config: Any, watch: Watch = unwatched) -> Data:
        inputs, table = cls._read(config)
        with cls._path(config).open("rb") as file:
            checksum = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
        return table.to_data(torch.from_numpy(inputs), checksum, table.files)

    @classmethod
    def _read(cls, config: Any) -> tuple[NDArray[Any], SampleTable]:
        inputs, columns = cls.read(cls._path(config), config)
        table = sample_table_from_columns(np.arange(len(inputs)), columns, config)
        return inputs, with_severity(table, config)

    @classmethod
    def _path(cls, config: ArrayConfig) -> Path:
        if config.file is None:
            raise DataError(f"{cls.title} needs data.file: {cls.layout}.")
        path = user_path(config.file)
        if path.is_dir():
            raise DataError(f"data.file {config.file!r} is a folder. Join its parts into one file: {cls.layout}.")
        if not path.is_file():
            raise DataError(f"data.file {config.file!r} is not a file. Expected {cls.layout}.")
        return path


def as_features(x: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Return features (n, d) as float32. NaN and infinity are counted and refused."""
    features = to_float32(x, name)
    if (wrong := np.flatnonzero(~np.isfinite(features).all(axis=1))).size:
        raise DataError(
            f"{wrong.size:,} of {len(features):,} samples have features that are missing, NaN or infinite in "
            f"{name!r}, the first is sample {wrong[0] + 1:,} (counted from 1). Fill them in, or remove these samples."
        )
    return features


def to_float32(x: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Return numbers as float32. What it cannot hold is infinite."""
    if x.dtype.kind not in "fiub":
        raise DataError(f"{name!r} holds {x.dtype}: features are numbers.")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, dtype=np.float32)


def as_images(x: NDArray[Any], name: str, channels: Literal["first", "last"] | None) -> NDArray[Any]:
    """Return images (n, channel, height, width), as uint8 or as float32 in [0, 1].

    Given are such images, or (n, height, width, channel), or (n, height, width).
    """
    if x.dtype.kind == "f":
        low, high = float(x.min(initial=0)), float(x.max(initial=0))  # NaN wherever one is
        if not (low >= 0 and high <= 1):
            raise DataError(
                f"{name!r} holds images as floats from {low:g} to {high:g}: floats must lie in [0, 1]. Rescale them, "
                "or give uint8."
            )
        x = x.astype(np.float32)
    elif x.dtype != np.uint8:
        raise DataError(f"{name!r} holds images as {x.dtype}: give uint8 (0 to 255), or floats in [0, 1].")
    if x.ndim == 3:
        return np.ascontiguousarray(x[:, None])
    return np.ascontiguousarray(x if _channels(x, name, channels) == "first" else x.transpose(0, 3, 1, 2))


def _channels(x: NDArray[Any], name: str, channels: Literal["first", "last"] | None) -> Literal["first", "last"]:
    """Say which axis holds the channels: as the setting says, else the only one of the two that is short."""
    if channels is not None:
        return channels
    first, last = x.shape[1] <= MOST_CHANNELS, x.shape[3] <= MOST_CHANNELS
    if first == last:
        raise DataError(
            f"Images of shape {x.shape} in {name!r}: which axis is the channels, the second or the last? Set "
            "data.channels to first or last."
        )
    return "first" if first else "last"
