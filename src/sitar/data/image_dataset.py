"""Data sets of image files share their settings, and the way from a sample table to data in memory."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from sitar.data.base import DataConfig, Dataset, Prepared
from sitar.data.published_counts import compare_counts
from sitar.data.sample_table import SampleTable
from sitar.data.severity import SeverityConfig
from sitar.data.types import Data
from sitar.errors import DataError
from sitar.files import user_path
from sitar.images.cache import Cached, cached_images
from sitar.images.download import fetch, unpack
from sitar.images.files import Files, check_root, places
from sitar.images.parquet import find_shards
from sitar.progress import Watch, unwatched

logger = logging.getLogger(__name__)
WILDS, PARQUET = "WILDS folder", "Hugging Face Parquet"  # layouts beside a data set's original one
MEGABYTE = 10**6


class ImageConfig(DataConfig):
    """Says where images lie, and how each is decoded."""

    root: str | None = Field(default=None, description="folder with the dataset's files")
    image_size: int = Field(default=64, ge=4, le=1024, description="images are resized to this square")
    crop_pct: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="null: the whole image, stretched; else the shorter side becomes image_size / crop_pct, aspect "
        "kept, and the central square is cut out, as with pretrained encoders",
    )
    channels: int = Field(
        default=3, ge=1, le=64, description="3: RGB, 1: gray, whatever the files have; else that of every file, kept"
    )
    on_bad: Literal["fail", "skip"] = Field(
        default="fail", description="images that cannot be read: stop, or leave out"
    )


def in_words(config: ImageConfig) -> str:
    """Return what a warning calls the images of a data set, so that they are told from new images."""
    return "images of the data set" + ("" if config.root is None else f" in {config.root!r}")


class ShortcutConfig(ImageConfig, SeverityConfig):
    """Adds a severity, for images whose attribute has two values."""


class ImageDataset(Dataset):
    """Describes a data set of image files, which are decoded once, into the cache.

    A subclass reads the metadata (`samples`) and, where a folder alone does not say it, finds the images (`files`).
    """

    @classmethod
    def files(cls, config: Any) -> Files:
        """Find the images: in the folder and the folders in it, or in Parquet shards."""
        root = cls.root(config)
        return Files(places(root), shards=find_shards(root) if cls.layout_of(config) == PARQUET else None)

    @classmethod
    def load(cls, config: Any, watch: Watch = unwatched) -> Data:
        """Load the decoded images, from the cache or into it. Bad ones are left out where that is allowed."""
        table, cached = cls._decode(config, cls.samples(config), watch)
        cached.warn(in_words(config))
        good = np.flatnonzero(cached.good)
        return table.take(good).to_data(cached.images, cached.checksum, good, cached.sums)

    @classmethod
    def prepare(cls, config: Any, watch: Watch = unwatched) -> Prepared:
        table = cls._samples_if_there(config) if cls.downloads else None
        if table is None and cls.downloads and config.root is not None:
            cls._download(config, watch)
        return Prepared(*cls._decode(config, cls.samples(config) if table is None else table, watch))

    @classmethod
    def root(cls, config: ImageConfig) -> Path:
        """Return the folder with the files; an error says what should lie in it and how to get that."""
        return check_root(config.root, cls.title, cls.layout, cls.how_to_get())

    @classmethod
    def root_and_layout(cls, config: Any) -> tuple[Path, str]:
        """Return the folder and the layout that it has; an error says how to get the files where it has none."""
        if (layout := cls.layout_of(config)) is None:
            raise cls.missing(config)
        return cls.root(config), layout

    @classmethod
    def how_to_get(cls) -> str:
        """Say what to do where the files are missing."""
        prepare = f"`sitar data prepare {cls.Config.model_fields['name'].default} --root DIR` downloads them"
        hand = f"by hand: {cls.by_hand}." if cls.by_hand else ""
        if cls.downloads:
            return f"{prepare}; or bring them {hand}"
        return hand and f"No host gives them to a script; bring them {hand}"

    @classmethod
    def missing(cls, config: ImageConfig) -> DataError:
        """Return the error for a folder without the data set."""
        return DataError(f"{config.root!r} holds no files of {cls.title}. Expected {cls.layout}. {cls.how_to_get()}")

    @classmethod
    def _decode(cls, config: Any, table: SampleTable, watch: Watch) -> tuple[SampleTable, Cached]:
        cls._warn_of_counts(config, table)
        return decode_samples(table, cls.files(config), config, watch(f"{cls.title}: images decoded", len(table)))

    @classmethod
    def _samples_if_there(cls, config: ImageConfig) -> SampleTable | None:
        """Read the sample table, where the folder has the metadata and at least one image."""
        if config.root is None or not user_path(config.root).is_dir() or cls.layout_of(config) is None:
            return None
        table, files = cls.samples(config), cls.files(config)
        return table if any(files.stamp(name) for name in table.files.tolist()) else None

    @classmethod
    def _download(cls, config: ImageConfig, watch: Watch) -> None:
        """Fetch the archives of the data set and unpack them in its folder."""
        root = user_path(config.root or ".")
        root.mkdir(parents=True, exist_ok=True)
        for download in cls.downloads:
            try:
                archive = fetch(download, root, _in_megabytes(watch, f"{cls.title}: MB downloaded"))
            except DataError as error:
                hand = f"bring the files by hand: {cls.by_hand}. {cls.title} expects {cls.layout}"
                raise DataError(f"{error} Or {hand}.") from error
            unpack(archive, root)
            archive.unlink()

    @classmethod
    def _warn_of_counts(cls, config: Any, table: SampleTable) -> None:
        """Say, in one line, where the counts are not the published ones: half a copy, or another one."""
        comparison = compare_counts(table, cls.published(config))
        if comparison.agrees is False:
            command = shlex.join(["sitar", "data", "check", config.name, "--root", config.root])
            logger.warning(
                "%s has other counts than published. In total: %s. `%s` shows every group.",
                cls.title, comparison.totals(), command,
            )  # fmt: skip


def decode_samples(
    table: SampleTable, files: Files, config: Any, tell: Callable[[int], None]
) -> tuple[SampleTable, Cached]:
    """Decode the images of a table, as an `ImageConfig` asks, or read them from the cache. `tell` counts them."""
    size = (config.image_size, config.image_size)
    order = table.files.argsort()  # one cache for every setting that uses the same files
    cached = cached_images(
        config.name, table.files[order].tolist(), files, size,
        crop_pct=config.crop_pct, channels=config.channels, on_bad=config.on_bad, watch=tell,
    )  # fmt: skip
    return table.take(order), cached


def _in_megabytes(watch: Watch, name: str) -> Callable[[int, int | None], None]:
    """Return a function that is told the bytes done and, where the host says it, the bytes in all."""
    tell: Callable[[int], None] | None = None

    def received(done: int, total: int | None) -> None:
        nonlocal tell
        tell = tell or watch(name, (total or 0) // MEGABYTE)
        tell(done // MEGABYTE)

    return received
