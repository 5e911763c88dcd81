"""BAR (biased action recognition) shows six actions. Their usual scenes give them away, and the test has unusual ones.

There is no validation split: a tenth of every class of the training images becomes one. There are no groups.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from sitar.data.image_dataset import ImageDataset, ShortcutConfig
from sitar.data.sample_table import SampleTable, names
from sitar.data.severity import with_severity
from sitar.data.splitting import with_val
from sitar.errors import DataError
from sitar.images.download import Download
from sitar.images.files import Files, places
from sitar.registry import DATASETS
from sitar.wording import are, counted

CLASSES = ("climbing", "diving", "fishing", "pole vaulting", "racing", "throwing")
VAL_SHARE = 0.1
PUBLISHED = {"train + val": (326, 520, 163, 279, 336, 317), "test": (105, 159, 42, 131, 132, 85)}  # val is ours


class BARConfig(ShortcutConfig):
    name: Literal["bar"] = "bar"
    image_size: int = Field(default=224, ge=4, le=1024, description="images are resized to this square")
    seed: int = Field(default=0, ge=0, description="of the validation split: not the run's seed")


@DATASETS.register("bar")
class BAR(ImageDataset):
    Config = BARConfig
    title = "BAR"
    layout = "train/ and test/ with images named CLASS_NUMBER.jpg, unpacked or in zip archives"
    licence = "non-commercial research; the images are of imSitu, Stanford 40 Actions and the web"
    citation = "Nam et al., Learning from Failure: Training Debiased Classifier from Biased Classifier, NeurIPS 2020"
    homepage = "https://github.com/alinlab/BAR"
    by_hand = f"a copy of the repository {homepage}"
    downloads = (Download("BAR.tar.gz", (f"{homepage}/archive/master.tar.gz",)),)  # made on demand: no checksum

    @classmethod
    def layout_of(cls, config: BARConfig) -> str | None:
        return "original" if cls._images(config) else None

    @classmethod
    def samples(cls, config: BARConfig) -> SampleTable:
        images = cls._images(config)
        action = [name.partition("/")[2].rpartition("_")[0] for name in images]
        if strange := [name for name, a in zip(images, action, strict=True) if a not in CLASSES]:
            n = len(strange)
            raise DataError(f"{counted(n, 'file')} {are(n)} of no class of BAR, such as {strange[0]!r}. {_expected()}")
        if not images:
            raise cls.missing(config)
        label = np.array([CLASSES.index(a) for a in action])
        split = names([name.partition("/")[0] for name in images])
        split = with_val(label, split, None, VAL_SHARE, config.seed)
        return with_severity(SampleTable(names(images), label, split, CLASSES), config)

    @classmethod
    def published(cls, config: BARConfig) -> dict[str, dict[str, int]]:
        return {split: dict(zip(CLASSES, sizes, strict=True)) for split, sizes in PUBLISHED.items()}

    @classmethod
    def files(cls, config: BARConfig) -> Files:
        root = cls.root(config)
        return Files(places(root), [path for place in places(root) for path in sorted(place.glob("*.zip"))])

    @classmethod
    def _images(cls, config: BARConfig) -> list[str]:
        return [name for name in cls.files(config).names() if name.startswith(("train/", "test/"))]


def _expected() -> str:
    return f"Expected names like train/{CLASSES[0]}_0.jpg, of the classes {', '.join(CLASSES)}."
