"""What datasets of images share: settings, and the way from an index to data in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from sitar.config import Config
from sitar.data.base import Data
from sitar.data.dataset import Dataset
from sitar.data.index import Index
from sitar.data.severity import SeverityConfig
from sitar.images.cache import Cached, cached_images
from sitar.images.files import Files, check_root


class ImageConfig(Config):
    root: str | None = Field(default=None, description="folder with the dataset's files")
    image_size: int = Field(default=64, ge=4, le=1024, description="images are resized to this square")
    crop_pct: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="null: the whole image, stretched; else the shorter side becomes image_size / crop_pct, aspect "
        "kept, and the central square is cut out, as with pretrained encoders",
    )
    on_bad: Literal["fail", "skip"] = Field(
        default="fail", description="images that cannot be read: stop, or leave out"
    )


class ShortcutConfig(ImageConfig, SeverityConfig):
    """Of images with an attribute of two values."""


class ImageDataset(Dataset):
    """A dataset of image files: a subclass says what is in its metadata and where its images are."""

    Config: ClassVar[type[ImageConfig]]

    @classmethod
    def files(cls, config: Any) -> Files:
        """Where the images are."""
        raise NotImplementedError

    @classmethod
    def root(cls, config: ImageConfig) -> Path:
        return check_root(config.root, cls.title, cls.layout)

    @classmethod
    def prepare(cls, config: Any, watch: Callable[[int], None] = lambda _: None) -> tuple[Index, Cached]:
        """The index and its decoded images, in the order of the index."""
        index, size = cls.index(config), (config.image_size, config.image_size)
        order = index.files.argsort()  # one cache for every setting that uses the same files
        cached = cached_images(
            config.name, index.files[order].tolist(), cls.files(config), size,
            crop_pct=config.crop_pct, on_bad=config.on_bad, watch=watch,
        )  # fmt: skip
        return index.take(order), cached

    @classmethod
    def load(cls, config: Any) -> Data:
        """Decoded images, from the cache or into it, with their labels; bad ones are left out where that is allowed."""
        index, cached = cls.prepare(config)
        good = np.flatnonzero(cached.good)
        return index.take(good).to_data(torch.from_numpy(cached.images)[good], cached.checksum)
