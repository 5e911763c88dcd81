"""Your own images, one folder a class: ROOT/CLASS/*.jpg, or ROOT/train/CLASS/*.jpg with val and test beside it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from sitar.data.image_data import ImageConfig, ImageDataset
from sitar.data.index import Index, names
from sitar.data.splitting import WORDS, check_classes, random_split, split_words, with_val
from sitar.errors import DataError
from sitar.images.files import Files
from sitar.registry import DATASETS


class SplitConfig(ImageConfig):
    """Of data that may come without splits."""

    val_share: float = Field(default=0.1, ge=0, lt=1, description="for validation, where there is no such split")
    test_share: float = Field(default=0.2, ge=0, lt=1, description="for the test, where there are no splits")
    seed: int = Field(default=0, ge=0, description="of the split that is made: not the run's seed")

    @model_validator(mode="after")
    def _something_to_train_on(self) -> SplitConfig:
        if self.val_share + self.test_share >= 1:
            raise ValueError("val_share and test_share leave nothing to train on")
        return self


class FolderConfig(SplitConfig):
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
        classes = sorted({part[depth] for part in parts})
        check_classes(classes, len(found))
        place = {name: i for i, name in enumerate(classes)}
        label = np.array([place[part[depth]] for part in parts])
        if has_splits:
            split = split_words([part[0] for part in parts], repr(config.root))
            split = with_val(label, split, None, config.val_share, config.seed)
        else:
            split = random_split(label, None, config.val_share, config.test_share, config.seed)
        return Index(names(found), label, split, tuple(classes))

    @classmethod
    def files(cls, config: FolderConfig) -> Files:
        return Files([cls.root(config)])
