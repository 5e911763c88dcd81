"""CelebA: faces with forty attributes, of which one is the label and another the shortcut.

`partition: official` is the authors' split; `first_10k` our own of images 000001 to 010000: of the number in the file
name modulo 20, 0 to 4 are test, 5 and 6 validation, the others train; with `majority_only` every image that contradicts
the shortcut is test. The tasks of the paper: Blond_Hair with Male, and Attractive with Smiling.

Licence: non-commercial research. Citation: Liu et al., Deep Learning Face Attributes in the Wild, 2015.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from sitar.data.image_data import ImageDataset, ShortcutConfig
from sitar.data.index import Index, larger_diagonal, names
from sitar.data.severity import with_severity
from sitar.errors import DataError
from sitar.images.files import Files, places, read_text
from sitar.registry import DATASETS, unknown

ATTRIBUTES_MD5 = "75e246fa4810816ffd6ee81facbd244c"
PARTITION_MD5 = "d32c9cbf5e040fd4025c592c306e6668"
SPLITS = {"0": "train", "1": "val", "2": "test"}
MAJORITY = {("Blond_Hair", "Male"): {(0, 1), (1, 0)}, ("Attractive", "Smiling"): {(0, 1), (1, 0)}}
PUBLISHED = {  # the paper's split tables: (label, attribute) = 00, 01, 10, 11
    ("Blond_Hair", "Male"): {
        "train": (0, 66874, 22880, 0),
        "val": (0, 8276, 2874, 0),
        "test": (9767, 7535, 2480, 180),
    },
    ("Attractive", "Smiling"): {
        "train": (0, 31956, 37479, 0),
        "val": (0, 3780, 4510, 0),
        "test": (5668, 4396, 4307, 5591),
    },
}
FIRST_10K = 10_000


class CelebAConfig(ShortcutConfig):
    name: Literal["celeba"] = "celeba"
    label: str = Field(default="Blond_Hair", description="the attribute to predict")
    attribute: str = Field(default="Male", description="the attribute that is the shortcut")
    partition: Literal["official", "first_10k"] = "official"

    @model_validator(mode="after")
    def _different(self) -> CelebAConfig:
        if self.label == self.attribute:
            raise ValueError(f"label and attribute are both {self.label!r}: a shortcut differs from the label")
        return self


@DATASETS.register("celeba")
class CelebA(ImageDataset):
    Config = CelebAConfig
    title = "CelebA"
    layout = (
        "list_attr_celeba.txt, list_eval_partition.txt (as they are, .gz or .zip) and the images, unpacked in "
        "img_align_celeba/ or as img_align_celeba.zip"
    )

    @classmethod
    def index(cls, config: CelebAConfig) -> Index:
        root = cls.root(config)
        attributes, files, values = _attributes(read_text(root, "list_attr_celeba.txt"))
        for name in (config.label, config.attribute):
            if name not in attributes:
                raise unknown("attribute of CelebA", name, attributes)
        label, attribute = (values[:, attributes.index(name)] for name in (config.label, config.attribute))
        named = MAJORITY.get((config.label, config.attribute))
        index = Index(
            files,
            label,
            _official(read_text(root, "list_eval_partition.txt"), files),
            (f"not {config.label}", config.label),
            attribute,
            config.attribute,
            (f"not {config.attribute}", config.attribute),
            frozenset(named) if named else larger_diagonal(label, attribute),
        )
        return _first_10k(index, config) if config.partition == "first_10k" else with_severity(index, config)

    @classmethod
    def files(cls, config: CelebAConfig) -> Files:
        root = cls.root(config)
        archives = [path for place in places(root) for path in sorted(place.glob("img*.zip"))]
        return Files([folder for place in places(root) for folder in (place / "img_align_celeba", place)], archives)

    @classmethod
    def published(cls, config: CelebAConfig) -> dict[str, dict[str, int]] | None:
        if config.partition != "official" or not config.majority_only:
            return None
        counts = PUBLISHED.get((config.label, config.attribute), {})
        cells = [f"label={label},{config.attribute}={value}" for label in (0, 1) for value in (0, 1)]
        return {split: dict(zip(cells, sizes, strict=True)) for split, sizes in counts.items()} or None


def _attributes(text: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the attributes, files, and 0 or 1 for each."""
    _check(text, ATTRIBUTES_MD5, "list_attr_celeba.txt")
    start = text.index("000001.jpg")
    head, rest = text[:start].split(), text[start:].split()  # the number of images and the names; a line an image
    rows = np.array(rest).reshape(-1, len(head))
    return head[1:], rows[:, 0], (rows[:, 1:] == "1").astype(np.int64)


def _official(text: str, files: np.ndarray) -> np.ndarray:
    _check(text, PARTITION_MD5, "list_eval_partition.txt")
    of = dict(line.split() for line in text.splitlines() if line.strip())
    return names([SPLITS[of[file]] for file in files])


def _first_10k(index: Index, config: CelebAConfig) -> Index:
    index = index.take(np.arange(FIRST_10K))
    place = np.array([int(file[:6]) for file in index.files]) % 20
    split = np.where(place < 5, "test", np.where(place < 7, "val", "train"))
    if config.majority_only:
        split[~index.in_majority()] = "test"
        return replace(index, split=split)
    return with_severity(replace(index, split=split), config)


def _check(text: str, md5: str, name: str) -> None:
    found = {hashlib.md5(text.replace("\r\n", ending).encode()).hexdigest() for ending in ("\n", "\r\n")}
    found.add(hashlib.md5(text.encode()).hexdigest())
    if md5 not in found:
        raise DataError(
            f"{name} is not CelebA's (its checksum differs): it was cut or changed. Bring the original file."
        )
