"""CelebA holds faces with forty attributes, of which one is the label and another the shortcut.

`partition: official` is the authors' split. `first_10k` is our own split of the images 000001 to 010000, by the number
in the file name modulo 20: 0 to 4 are test, 5 and 6 validation, the others train. With `majority_only`, every one of
these images that contradicts the shortcut is test. The tasks of the paper are Blond_Hair with Male, and Attractive with
Smiling.

`exchange` and `exchange_oracle` split the same images for tasks in which label and shortcut change roles. What follows
the shortcut is test (0 to 4), validation (5 and 6), `val_ood` (7 to 9) and train (10 to 19). What contradicts it is
test (0 to 9) and `val_ood`, which stands for images from where a model will be used. `exchange_oracle` has the same
test. It trains on as many images, from groups of the same size, and takes what contradicts the shortcut from `val_ood`.
Classes are named so that the two roles of a pair have the same images in the same class (`_same_piles`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from sitar.data.base import Box, Metadata
from sitar.data.image_dataset import PARQUET, WILDS, ImageDataset, ShortcutConfig
from sitar.data.published_counts import TOTAL
from sitar.data.sample_table import SampleTable, larger_diagonal, names
from sitar.data.severity import with_severity
from sitar.data.splitting import split_words
from sitar.data.tables import ShardedTable
from sitar.errors import ConfigError, DataError
from sitar.images.files import Files, find_text, places, read_text
from sitar.images.parquet import IMAGE, find_shards
from sitar.registry import DATASETS, unknown

MD5 = {  # of the text; of the CSV files with \n at the end of lines and none at the end of the file
    "list_attr_celeba.txt": "75e246fa4810816ffd6ee81facbd244c",
    "list_eval_partition.txt": "d32c9cbf5e040fd4025c592c306e6668",
    "list_attr_celeba.csv": "6273e553ffb4731184cf51e7902989df",
    "list_eval_partition.csv": "00c23c66030507f124174c2b3a110840",
}
SPLITS = {"0": "train", "1": "val", "2": "test"}
BINARY = {"1": 1, "-1": 0, "0": 0, "True": 1, "False": 0}
MAJORITY = {("Blond_Hair", "Male"): {(0, 1), (1, 0)}, ("Attractive", "Smiling"): {(0, 1), (1, 0)}}
PUBLISHED = {  # of the authors' lists: (label, attribute) = 00, 01, 10, 11
    ("Blond_Hair", "Male"): {
        "train": (71629, 66874, 22880, 1387),
        "val": (8535, 8276, 2874, 182),
        "test": (9767, 7535, 2480, 180),
    },
    ("Attractive", "Smiling"): {
        "train": (47211, 31956, 37479, 46124),
        "val": (5755, 3780, 4510, 5822),
        "test": (5668, 4396, 4307, 5591),
    },
}
PUBLISHED_TOTAL = {"train": 162_770, "val": 19_867, "test": 19_962}  # whatever the attributes
PUBLISHED_MAJORITY = {  # the paper's split tables
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
ALIGNED = (178, 218)  # width and height of an aligned image
# In it the eyes are at (69, 111) and (108, 111), the corners of the mouth at y = 152. Pupils are 63 mm apart, which are
# these 39 pixels; a face is 137 mm wide at the cheekbones, its hairline 73 mm above the eyes, its chin 45 mm below the
# mouth.
FACE = (47, 67, 131, 180)  # left, top, right, bottom


class CelebAConfig(ShortcutConfig):
    name: Literal["celeba"] = "celeba"
    label: str = Field(default="Blond_Hair", description="the attribute to predict")
    attribute: str = Field(default="Male", description="the attribute that is the shortcut")
    partition: Literal["official", "first_10k", "exchange", "exchange_oracle"] = "official"

    @model_validator(mode="after")
    def _different(self) -> CelebAConfig:
        if self.label == self.attribute:
            raise ValueError(f"label and attribute are both {self.label!r}: a shortcut differs from the label")
        if self.partition == "exchange" and not self.majority_only:
            raise ValueError("partition exchange needs majority_only: no training sample contradicts the shortcut")
        if self.partition == "exchange_oracle" and (self.majority_only or self.rho is not None):
            raise ValueError("partition exchange_oracle has groups of the same size: set neither majority_only nor rho")
        return self


@DATASETS.register("celeba")
class CelebA(ImageDataset):
    Config = CelebAConfig
    title = "CelebA"
    layout = (
        "list_attr_celeba.txt, list_eval_partition.txt (as they are, .gz or .zip; .csv as WILDS has them) and the "
        "images, unpacked in img_align_celeba/ or as img_align_celeba.zip, or Parquet files with image and a column an "
        "attribute"
    )
    licence = "non-commercial research, under the authors' agreement"
    citation = "Liu et al., Deep Learning Face Attributes in the Wild, ICCV 2015"
    homepage = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    by_hand = (
        f"img_align_celeba.zip, list_attr_celeba.txt and list_eval_partition.txt from the Google Drive that {homepage} "
        "links to, or the Parquet files of huggingface.co/datasets/flwrlabs/celeba"
    )

    @classmethod
    def box_of_interest(cls, config: CelebAConfig) -> Box:
        """Return the face, from hairline to chin and between the cheekbones: hair is outside."""
        width, height = ALIGNED
        if config.crop_pct is None:  # stretched to a square, so fractions stay
            return FACE[0] / width, FACE[1] / height, FACE[2] / width, FACE[3] / height
        side = width * config.crop_pct  # of the central square that is cut out
        left, top = (width - side) / 2, (height - side) / 2
        x0, x1 = ((x - left) / side for x in FACE[::2])
        y0, y1 = ((y - top) / side for y in FACE[1::2])
        return max(0.0, x0), max(0.0, y0), min(1.0, x1), min(1.0, y1)

    @classmethod
    def layout_of(cls, config: CelebAConfig) -> str | None:
        root = cls.root(config)
        if find_text(root, "list_attr_celeba.txt"):
            return "original"
        if find_text(root, "list_attr_celeba.csv"):
            return WILDS
        return PARQUET if find_shards(root) else None

    @classmethod
    def samples(cls, config: CelebAConfig) -> SampleTable:
        root, layout = cls.root_and_layout(config)
        read = _parquet if layout == PARQUET else _lists
        files, split, label, attribute = read(root, config)
        named = MAJORITY.get((config.label, config.attribute)) or MAJORITY.get((config.attribute, config.label))
        train = split == "train"
        table = SampleTable(
            files,
            label,
            split,
            (f"not {config.label}", config.label),
            attribute,
            config.attribute,
            (f"not {config.attribute}", config.attribute),
            frozenset(named) if named else larger_diagonal(label[train], attribute[train]),
        )
        if config.partition == "first_10k":
            return _first_10k(table, config)
        return with_severity(table, config) if config.partition == "official" else _exchange(table, config)

    @classmethod
    def metadata(cls, config: CelebAConfig) -> Metadata:
        """Return all attributes but the label, in words: `Male` or `not Male`."""
        root, layout = cls.root_and_layout(config)
        if layout == PARQUET:
            table = ShardedTable(root, "CelebA's Parquet files", (config.label, config.attribute))
            files = table.files()
            words = {name: table.words(name) for name in table.shared_names() if name != IMAGE}
            values = {name: table.coded(name, BINARY) for name in words if set(words[name]) <= BINARY.keys()}
        else:
            files, _, values = attribute_lists(root)
        columns = {name: np.where(of == 1, name, f"not {name}").tolist() for name, of in values.items()}
        return Metadata(list(files), {name: words for name, words in columns.items() if name != config.label})

    @classmethod
    def files(cls, config: CelebAConfig) -> Files:
        root = cls.root(config)
        archives = [path for place in places(root) for path in sorted(place.glob("img*.zip"))]
        folders = [folder for place in places(root) for folder in (place / "img_align_celeba", place)]
        return Files(folders, archives, find_shards(root) if cls.layout_of(config) == PARQUET else None)

    @classmethod
    def published(cls, config: CelebAConfig) -> dict[str, dict[str, int]] | None:
        if config.partition != "official" or config.rho is not None:
            return None
        counts = (PUBLISHED_MAJORITY if config.majority_only else PUBLISHED).get((config.label, config.attribute))
        if counts is None:
            return None if config.majority_only else {split: {TOTAL: n} for split, n in PUBLISHED_TOTAL.items()}
        cells = [f"label={label},{config.attribute}={value}" for label in (0, 1) for value in (0, 1)]
        return {split: dict(zip(cells, sizes, strict=True)) for split, sizes in counts.items()}


def _lists(root: Path, config: CelebAConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read files, splits, labels and attributes from the authors' lists, or from the same lists as CSV files."""
    files, split, attributes = attribute_lists(root, (config.label, config.attribute))
    return files, split, attributes[config.label], attributes[config.attribute]


def attribute_lists(
    root: Path, wanted: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Read the file and the official split of every image, and the wanted attributes (all: None), from the lists."""
    ending = "txt" if find_text(root, "list_attr_celeba.txt") else "csv"
    text = _read(root, f"list_attr_celeba.{ending}")
    start = text.index("000001.jpg")
    head, rest = text[:start].split(), text[start:].split()  # a word and the names of the attributes; a line an image
    wanted = head[1:] if wanted is None else wanted
    for name in wanted:
        if name not in head[1:]:
            raise unknown("attribute of CelebA", name, head[1:])
    of = _read(root, f"list_eval_partition.{ending}").split()
    splits = dict(zip(of[::2], of[1::2], strict=True))
    files = rest[:: len(head)]
    columns = {name: (np.array(rest[head.index(name) :: len(head)]) == "1").astype(np.int64) for name in wanted}
    return names(files), names([SPLITS[splits[file]] for file in files]), columns


def _parquet(root: Path, config: CelebAConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the same from Parquet files."""
    if config.partition != "official":
        raise ConfigError(
            f"data.partition={config.partition} goes by the names of the files, which Parquet files need not keep. Use "
            "official, or bring CelebA in its original layout."
        )
    wanted = (config.label, config.attribute)
    table = ShardedTable(root, "CelebA's Parquet files", wanted)
    label, attribute = (table.coded(name, BINARY) for name in wanted)
    return names(table.files()), split_words(table.split_words(), f"The names of {table.title}"), label, attribute


def place_of(files: Iterable[str]) -> np.ndarray:
    """Return the number in each file name modulo 20, which decides the split of an image."""
    return np.array([int(file[:6]) for file in files]) % 20


def _first_10k(table: SampleTable, config: CelebAConfig) -> SampleTable:
    table = table.take(np.arange(FIRST_10K))
    place = place_of(table.files)
    split = np.where(place < 5, "test", np.where(place < 7, "val", "train"))
    if config.majority_only:
        split[~table.in_majority()] = "test"
        return replace(table, split=split)
    return with_severity(replace(table, split=split), config)


def _exchange(table: SampleTable, config: CelebAConfig) -> SampleTable:
    table = _same_piles(table.take(np.arange(FIRST_10K)), config)
    place, follows = place_of(table.files), table.in_majority()
    with_it = np.select([place < 5, place < 7, place < 10], ["test", "val", "val_ood"], "train")
    split = np.where(follows, with_it, np.where(place < 10, "test", "val_ood"))
    if config.partition == "exchange_oracle":
        split = _oracle(split, place, follows, table.group, config.seed)
    return replace(table, split=split)


def _same_piles(table: SampleTable, config: CelebAConfig) -> SampleTable:
    """Name classes and values so that the shortcut is followed where their numbers agree, in both roles of a pair.

    Where it is followed by opposites (blond and not male), the attribute that comes later in the alphabet is counted
    the other way round: 0 is Male, 1 is not Male. So both roles have the same training images under the same numbers.
    """
    if table.majority == {(0, 0), (1, 1)}:
        return table
    assert table.attribute is not None
    diagonal = frozenset({(0, 0), (1, 1)})
    if config.label > config.attribute:
        return replace(table, label=1 - table.label, classes=table.classes[::-1], majority=diagonal)
    values = table.attribute_values[::-1]
    return replace(table, attribute=1 - table.attribute, attribute_values=values, majority=diagonal)


def _oracle(
    split: np.ndarray, place: np.ndarray, follows: np.ndarray, group: np.ndarray | None, seed: int
) -> np.ndarray:
    """Return the split with as many training images, from groups of the same size. The rest of them is `val_ood`.

    A group that has too few images gives all of them, and the others share what is left. Of the images that contradict
    the shortcut and are not test, one in ten is validation.
    """
    assert group is not None
    random = np.random.default_rng((seed, 1))
    left = int((split == "train").sum()) // 4 * 4
    split = np.where(~follows & (split == "val_ood") & (place == 19), "val", split)
    may_train = (split == "train") | (~follows & (split == "val_ood"))
    split[split == "train"] = "val_ood"
    groups = sorted(range(4), key=lambda number: int((may_train & (group == number)).sum()))
    for i, number in enumerate(groups):
        members = np.flatnonzero(may_train & (group == number))
        drawn = random.choice(members, min(len(members), left // (4 - i)), replace=False)
        split[drawn] = "train"
        left -= len(drawn)
    return split


def _read(root: Path, name: str) -> str:
    """Read a list of the authors and verify it. Its columns are then separated by spaces."""
    text = read_text(root, name)
    lines = text.replace("\r\n", "\n")
    forms = (text, lines, lines.replace("\n", "\r\n"), lines.rstrip("\n"))
    if MD5[name] not in {hashlib.md5(form.encode()).hexdigest() for form in forms}:
        raise DataError(
            f"{name} is not CelebA's (its checksum differs): it was cut or changed. Bring the original file."
        )
    return lines.replace(",", " ")
