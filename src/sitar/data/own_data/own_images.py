"""A folder and a table of your own images share what stands here."""

from __future__ import annotations

from typing import Any

from sitar.data.image_dataset import ImageDataset, ShortcutConfig
from sitar.data.splitting import SplitConfig
from sitar.images.files import Files


class OwnImagesConfig(SplitConfig, ShortcutConfig):
    """Adds how a split is made where there is none."""


class OwnImages(ImageDataset):
    """Reads your own images, which lie below one folder. A split that they do not come with is made."""

    licence = "yours"

    @classmethod
    def files(cls, config: Any) -> Files:
        return Files([cls.root(config)])

    @classmethod
    def val_share(cls, config: OwnImagesConfig) -> float:
        return config.val_share
