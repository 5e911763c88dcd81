"""Your own images, one folder a class: ROOT/CLASS/*.jpg, or ROOT/train/CLASS/*.jpg with val and test beside it."""

from __future__ import annotations

from typing import Literal

from sitar.data.image_data import ImageConfig, ImageDataset
from sitar.data.index import Index, names
from sitar.data.own import Column, Columns, own_index
from sitar.data.splitting import WORDS, SplitConfig
from sitar.errors import DataError
from sitar.images.files import Files
from sitar.registry import DATASETS


class FolderConfig(ImageConfig, SplitConfig):
    name: Literal["folder"] = "folder"


@DATASETS.register("folder")
class Folder(ImageDataset):
    Config = FolderConfig
    title = "A folder of yours"
    layout = "a folder a class with its images, or train/, val/ and test/ with such folders"

    @classmethod
    def index(cls, config: FolderConfig) -> Index:
        found = cls.files(config).names()
        if not found:
            raise DataError(f"{config.root!r} has no images below it. Expected {cls.layout}.")
        parts = [name.split("/") for name in found]
        has_splits = all(part[0].lower() in WORDS and len(part) > 2 for part in parts)
        depth = 1 if has_splits else 0
        if loose := [name for name, part in zip(found, parts, strict=True) if len(part) < depth + 2]:
            raise DataError(
                f"{len(loose)} images lie in no folder of a class, such as {loose[0]!r}. Expected {cls.layout}."
            )
        label = Column("a folder's name", [part[depth] for part in parts])
        split = Column(str(config.root), [part[0] for part in parts]) if has_splits else None
        return own_index(names(found), Columns(label, split), config)

    @classmethod
    def files(cls, config: FolderConfig) -> Files:
        return Files([cls.root(config)])
