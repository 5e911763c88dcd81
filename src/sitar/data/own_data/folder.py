"""Your own images lie in a folder a class: ROOT/CLASS/*.jpg, or ROOT/train/CLASS/*.jpg with val and test beside it."""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import PurePosixPath
from typing import Literal

from sitar.data.from_columns import SampleColumns, sample_table_from_columns
from sitar.data.own_data.own_images import OwnImages, OwnImagesConfig
from sitar.data.sample_table import SampleTable, names
from sitar.data.severity import with_severity
from sitar.data.splitting import WORDS
from sitar.data.tables import Column
from sitar.errors import DataError
from sitar.images.files import is_image
from sitar.registry import DATASETS
from sitar.wording import are, counted

logger = logging.getLogger(__name__)


class FolderConfig(OwnImagesConfig):
    name: Literal["folder"] = "folder"


@DATASETS.register("folder")
class Folder(OwnImages):
    Config = FolderConfig
    title = "A folder of yours"
    layout = "a folder a class with its images, or train/, val/ and test/ with such folders"

    @classmethod
    def samples(cls, config: FolderConfig) -> SampleTable:
        everything = cls.files(config).all_names()
        images = [name for name in everything if is_image(name)]
        _warn_of_others([name for name in everything if not is_image(name)])
        if not images:
            within = any(name.endswith(".parquet") for name in everything)
            hint = " Parquet files that hold images are read by the data set 'table', not 'folder'." if within else ""
            raise DataError(f"{config.root!r} has no images below it. Expected {cls.layout}.{hint}")
        parts = [name.split("/") for name in images]
        in_split = {part[0] for part in parts if part[0].lower() in WORDS and len(part) > 2}
        others = sorted({part[0] for part in parts} - in_split)
        has_splits = not others
        if others and any(WORDS[name.lower()] == "train" for name in in_split):
            raise DataError(
                f"{config.root!r} has folders of splits, and beside them {', '.join(map(repr, others[:5]))}. Splits "
                f"are called {', '.join(WORDS)}: rename what is one, and move the rest elsewhere."
            )
        depth = 1 if has_splits else 0
        if loose := [name for name, part in zip(images, parts, strict=True) if len(part) < depth + 2]:
            raise DataError(
                f"{len(loose)} images lie in no folder of a class, such as {loose[0]!r}. Expected {cls.layout}."
            )
        label = Column("a folder's name", [_text(part[depth]) for part in parts])
        split = Column(str(config.root), [part[0] for part in parts]) if has_splits else None
        return with_severity(sample_table_from_columns(names(images), SampleColumns(label, split), config), config)


def _text(name: str) -> str:
    """Return the name of a folder, whatever bytes it has, in letters that every table and figure can show."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _warn_of_others(names: list[str]) -> None:
    """Say which files are no images by their names, so that none is missed."""
    if names:
        kinds = Counter(PurePosixPath(name).suffix.lower() or "no ending" for name in names)
        listed = ", ".join(f"{kind} ({times:,})" for kind, times in kinds.most_common(5))
        n = len(names)
        logger.warning("%s without the ending of an image %s left out: %s.", counted(n, "file"), are(n), listed)
