"""What datasets of images share: settings, and the way from an index to data in memory."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from sitar.config import NamedConfig
from sitar.data.base import Dataset
from sitar.data.published_counts import compare
from sitar.data.sample_table import Index
from sitar.data.severity import SeverityConfig
from sitar.data.types import Data
from sitar.errors import DataError
from sitar.images.cache import Cached, cached_images
from sitar.images.download import Download, Watch, fetch, unpack
from sitar.images.files import Files, check_root, places
from sitar.images.parquet import find_shards

logger = logging.getLogger(__name__)
WILDS, PARQUET = "WILDS folder", "Hugging Face Parquet"  # layouts beside a dataset's original one


class ImageConfig(NamedConfig):
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


class ShortcutConfig(ImageConfig, SeverityConfig):
    """Of images with an attribute of two values."""


class ImageDataset(Dataset):
    """A dataset of image files: a subclass says what is in its metadata and where its images are."""

    Config: ClassVar[type[ImageConfig]]
    licence: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    homepage: ClassVar[str] = ""
    by_hand: ClassVar[str] = ""  # where a person gets the files
    downloads: ClassVar[tuple[Download, ...]] = ()  # empty where no host gives them to a script

    @classmethod
    def face_box(cls, config: Any) -> tuple[float, float, float, float] | None:
        """Left, top, right and bottom of the face in images as a model sees them, in fractions; None: there is none."""
        return None

    @classmethod
    def located(cls, config: Any) -> tuple[Path, str]:
        """Its folder and the layout that it has; an error that says how to get the files where it has none."""
        if (found := cls.found(config)) is None:
            raise cls.missing(config)
        return cls.root(config), found

    @classmethod
    def files(cls, config: Any) -> Files:
        """Where the images are: in its folder and the folders in it, or in Parquet shards."""
        root = cls.root(config)
        return Files(places(root), shards=find_shards(root) if cls.found(config) == PARQUET else None)

    @classmethod
    def root(cls, config: ImageConfig) -> Path:
        return check_root(config.root, cls.title, cls.layout, cls.how_to_get())

    @classmethod
    def how_to_get(cls) -> str:
        """What to do where the files are missing."""
        prepare = f"`sitar data prepare {cls.Config.model_fields['name'].default} --root DIR` downloads them"
        hand = f"by hand: {cls.by_hand}." if cls.by_hand else ""
        if cls.downloads:
            return f"{prepare}; or bring them {hand}"
        return hand and f"No host gives them to a script; bring them {hand}"

    @classmethod
    def missing(cls, config: ImageConfig) -> DataError:
        """The error for a folder without the dataset."""
        return DataError(f"{config.root!r} holds no files of {cls.title}. Expected {cls.layout}. {cls.how_to_get()}")

    @classmethod
    def index_if_there(cls, config: ImageConfig) -> Index | None:
        """Its index, where its folder has the metadata and at least one image."""
        if config.root is None or not Path(config.root).expanduser().is_dir() or cls.found(config) is None:
            return None
        index, files = cls.index(config), cls.files(config)
        return index if any(files.stamp(name) for name in index.files.tolist()) else None

    @classmethod
    def download(cls, config: ImageConfig, watch: Watch = lambda done, total: None) -> None:
        """Its archives, fetched and unpacked in its folder."""
        root = Path(config.root or ".").expanduser()
        root.mkdir(parents=True, exist_ok=True)
        for download in cls.downloads:
            try:
                archive = fetch(download, root, watch)
            except DataError as error:
                hand = f"bring the files by hand: {cls.by_hand}. {cls.title} expects {cls.layout}"
                raise DataError(f"{error} Or {hand}.") from error
            unpack(archive, root)
            archive.unlink()

    @classmethod
    def warn_of_counts(cls, config: Any, index: Index) -> None:
        """Say, in one line, where this is not what is published: half a copy, or another one."""
        found = compare(index, cls.published(config))
        if found.agrees is False:
            logger.warning(
                "%s has other counts than published. In total: %s. `%s` shows every group.",
                cls.title, found.totals(), shlex.join(["sitar", "data", "check", config.name, "--root", config.root]),
            )  # fmt: skip

    @classmethod
    def prepare(
        cls, config: Any, watch: Callable[[int], None] = lambda _: None, index: Index | None = None
    ) -> tuple[Index, Cached]:
        """The index, or the one that is given, and its decoded images, in the order of the index."""
        index, size = cls.index(config) if index is None else index, (config.image_size, config.image_size)
        order = index.files.argsort()  # one cache for every setting that uses the same files
        cached = cached_images(
            config.name, index.files[order].tolist(), cls.files(config), size,
            crop_pct=config.crop_pct, channels=config.channels, on_bad=config.on_bad, watch=watch,
        )  # fmt: skip
        return index.take(order), cached

    @classmethod
    def load(cls, config: Any) -> Data:
        """Decoded images, from the cache or into it, with their labels; bad ones are left out where that is allowed."""
        index = cls.index(config)
        cls.warn_of_counts(config, index)
        index, cached = cls.prepare(config, index=index)
        cached.warn()
        good = np.flatnonzero(cached.good)
        return index.take(good).to_data(torch.from_numpy(cached.images), cached.checksum, good)
