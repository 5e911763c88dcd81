"""What datasets of images share: settings, and the way from an index to data in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from sitar.config import Config
from sitar.data.base import Data
from sitar.data.index import Index
from sitar.data.severity import majority_only, resample
from sitar.errors import DataError
from sitar.images.cache import Cached, cached_images
from sitar.images.download import Download, Watch, fetch, unpack
from sitar.images.files import Files, check_root

WILDS, PARQUET = "WILDS folder", "Hugging Face Parquet"  # layouts beside a dataset's original one


class ImageConfig(Config):
    root: str | None = Field(default=None, description="folder with the dataset's files")
    image_size: int = Field(default=64, ge=4, le=1024, description="images are resized to this square")
    on_bad: Literal["fail", "skip"] = Field(
        default="fail", description="images that cannot be read: stop, or leave out"
    )


class ShortcutConfig(ImageConfig):
    """Of data that knows an attribute of two values."""

    majority_only: bool = Field(
        default=False, description="train and val without a sample that contradicts the shortcut: the paper's regime"
    )
    rho: float | None = Field(
        default=None, ge=0, le=1, description="thin out train and val until this share follows the shortcut"
    )
    seed: int = Field(default=0, ge=0, description="of the thinning: not the run's seed")

    @model_validator(mode="after")
    def _one_severity(self) -> ShortcutConfig:
        if self.majority_only and self.rho is not None:
            raise ValueError("majority_only is rho = 1 already: set one of the two")
        return self


def with_severity(index: Index, config: ShortcutConfig) -> Index:
    """The index at the severity that the settings ask for."""
    if config.majority_only:
        return majority_only(index)
    return index if config.rho is None else resample(index, config.rho, config.seed)


class ImageDataset:
    """A dataset of image files: a subclass says what is in its metadata and where its images are."""

    Config: ClassVar[type[ImageConfig]]
    title: ClassVar[str]
    layout: ClassVar[str]  # what lies in its folder
    licence: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    homepage: ClassVar[str] = ""
    by_hand: ClassVar[str] = ""  # where a person gets the files
    downloads: ClassVar[tuple[Download, ...]] = ()  # empty where no host gives them to a script

    @classmethod
    def found(cls, config: Any) -> str | None:
        """The name of the layout that its folder has; None where there is nothing, or only one layout to have."""
        return None

    @classmethod
    def index(cls, config: Any) -> Index:
        """Files, labels, attributes and splits, from the metadata alone."""
        raise NotImplementedError

    @classmethod
    def files(cls, config: Any) -> Files:
        """Where the images are."""
        raise NotImplementedError

    @classmethod
    def published(cls, config: Any) -> dict[str, dict[str, int]] | None:
        """Group counts of the paper for these settings, by split, where it prints them."""
        return None

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
    def is_there(cls, config: ImageConfig) -> bool:
        """Whether its folder has the metadata and at least one image."""
        if not Path(config.root or ".").expanduser().is_dir() or cls.found(config) is None:
            return False
        files = cls.files(config)
        return any(files.stamp(name) for name in cls.index(config).files.tolist())

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
    def prepare(cls, config: Any, watch: Callable[[int], None] = lambda _: None) -> tuple[Index, Cached]:
        """The index and its decoded images, in the order of the index."""
        index, size = cls.index(config), (config.image_size, config.image_size)
        order = index.files.argsort()  # one cache for every setting that uses the same files
        cached = cached_images(
            config.name, index.files[order].tolist(), cls.files(config), size, on_bad=config.on_bad, watch=watch
        )
        return index.take(order), cached

    @classmethod
    def load(cls, config: Any) -> Data:
        """Decoded images, from the cache or into it, with their labels; bad ones are left out where that is allowed."""
        index, cached = cls.prepare(config)
        good = np.flatnonzero(cached.good)
        return index.take(good).to_data(torch.from_numpy(cached.images)[good], cached.checksum)
