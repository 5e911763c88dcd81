"""Dominoes are digits of MNIST above pieces of clothing of Fashion-MNIST, which go together in every training image.

So digit and clothing are interchangeable: no training image tells which of them is the label. `val_ood` stands for
images from where a model will be used, in which a share `mix_rate` of them goes the other way. In `ood_test` it is
always half, so that the halves are independent. `val` and `id_test` are like training.

`partition: coat_dress` has the classes and shares of D-BAT's authors, and `tshirt_trouser` those of ACE's
(docs/data.md).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from sitar.data.base import DataConfig, Dataset
from sitar.data.benchmarks.idx_files import IdxFiles
from sitar.data.benchmarks.mnist_files import CHECKSUM, load_mnist
from sitar.data.sample_table import SampleTable
from sitar.data.types import Data
from sitar.errors import DataError
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS

FASHION = IdxFiles(
    "Fashion-MNIST",
    {
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    ("FashionMNIST/raw", "raw"),
    "Replace it by the original file.",
)
DIGITS = ("0", "1")
INDEPENDENT = 0.5  # share of ood_test in which digit and clothing go together


@dataclass(frozen=True)
class Partition:
    """Says which clothes there are, and which shares of the training files become which split."""

    clothes: tuple[int, int]  # numbers of Fashion-MNIST's classes, the one that goes with the digit 0 first
    names: tuple[str, str]
    shares: tuple[tuple[str, float], ...]


PARTITIONS = {
    "coat_dress": Partition((4, 3), ("coat", "dress"), (("val_ood", 1 / 6), ("train", 3 / 4), ("val", 1 / 12))),
    "tshirt_trouser": Partition(
        (0, 1), ("T-shirt", "trouser"), (("val_ood", 3 / 4), ("train", 1 / 6), ("val", 1 / 24))
    ),
}


class DominoesConfig(DataConfig):
    name: Literal["dominoes"] = "dominoes"
    refused = {"majority_only": "data.rho=1.0, the default, is the strict regime"}
    root: str | None = Field(default=None, description="folder with Fashion-MNIST's four files")
    label: Literal["clothing", "digit"] = Field(default="clothing", description="the half to predict")
    partition: Literal["coat_dress", "tshirt_trouser"] = Field(
        default="coat_dress", description="which clothes, and shares of splits: those of D-BAT's or of ACE's authors"
    )
    rho: float = Field(default=1.0, ge=0, le=1, description="share of training images whose halves go together")
    mix_rate: float = Field(default=0.5, ge=0, le=1, description="share of val_ood whose halves do not go together")
    seed: int = Field(default=0, ge=0, description="of who goes with whom: not the run's seed")


class Half(NamedTuple):
    """Holds the images of one half by class, for one split."""

    images: NDArray[np.uint8]
    places: tuple[NDArray[np.int64], NDArray[np.int64]]

    def of(self, classes: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return an image of each of these classes, each image once, and from the front again where they run out."""
        place = np.empty(len(classes), dtype=np.int64)
        for number, own in enumerate(self.places):
            wanted = np.flatnonzero(classes == number)
            place[wanted] = np.resize(own, len(wanted))
        return self.images[place]


@DATASETS.register("dominoes")
class Dominoes(Dataset):
    Config = DominoesConfig
    title = "Dominoes"
    layout = "Fashion-MNIST's four files, packed or not; MNIST ships with the package"
    licence = "MNIST's: CC BY-SA 3.0; Fashion-MNIST's: MIT"
    citation = "Shah et al., The Pitfalls of Simplicity Bias, 2020; Pagliardini et al., 2023; Xiao et al., 2017"
    homepage = "https://github.com/zalandoresearch/fashion-mnist"
    by_hand = (
        "the four .gz files that the homepage links to, or `apt-get install dataset-fashion-mnist`, which puts them "
        "into /usr/share/datasets/fashion-mnist"
    )

    @classmethod
    def samples(cls, config: DominoesConfig) -> SampleTable:
        return _draw(config)[0]

    @classmethod
    def load(cls, config: DominoesConfig, watch: Watch = unwatched) -> Data:
        table, images = _draw(config)
        checksum = hashlib.sha256((CHECKSUM + FASHION.checksum).encode()).hexdigest()
        return table.to_data(torch.from_numpy(images), checksum)


def _draw(config: DominoesConfig) -> tuple[SampleTable, NDArray[np.uint8]]:
    """Put digits above clothes, split by split, and return the images (n, 1, 56, 28) with what is known of them."""
    if config.root is None:
        raise DataError(f"{Dominoes.title} needs data.root: {Dominoes.layout}. Get them by hand: {Dominoes.by_hand}.")
    mnist = load_mnist()
    clothes = FASHION.read(FASHION.find(config.root, f"get them by hand: {Dominoes.by_hand}."))
    partition = PARTITIONS[config.partition]
    together = {"train": config.rho, "val": config.rho, "id_test": config.rho, "val_ood": 1 - config.mix_rate}
    random = np.random.default_rng((config.seed, 0))
    tops = _halves(mnist.train_images, mnist.train_digits, (0, 1), partition.shares, random)
    bottoms = _halves(clothes[0], clothes[1], partition.clothes, partition.shares, random)
    for split in ("id_test", "ood_test"):
        tops[split] = _half(mnist.test_images, mnist.test_digits, (0, 1), random.permutation(len(mnist.test_digits)))
        bottoms[split] = _half(clothes[2], clothes[3], partition.clothes, random.permutation(len(clothes[3])))
    labels, attributes, splits, images = [], [], [], []
    for split, top in tops.items():
        digit, clothing = _pairs(top, bottoms[split], together.get(split, INDEPENDENT), random)
        images.append(np.concatenate([top.of(digit), bottoms[split].of(clothing)], axis=1)[:, None])
        label, attribute = (clothing, digit) if config.label == "clothing" else (digit, clothing)
        labels.append(label)
        attributes.append(attribute)
        splits.append(np.repeat(split, len(label)))
    halves = {"clothing": partition.names, "digit": DIGITS}
    other = "digit" if config.label == "clothing" else "clothing"
    pixels = np.concatenate(images)
    table = SampleTable(
        np.arange(len(pixels)),
        np.concatenate(labels),
        np.concatenate(splits),
        halves[config.label],
        np.concatenate(attributes),
        other,
        halves[other],
        frozenset({(0, 0), (1, 1)}),
    )
    return table, pixels


def _halves(
    images: NDArray[np.uint8],
    numbers: NDArray[np.uint8],
    classes: tuple[int, int],
    shares: tuple[tuple[str, float], ...],
    random: Generator,
) -> dict[str, Half]:
    """Deal the images of the training files out to the splits, by their shares."""
    order, halves, start = random.permutation(len(numbers)), {}, 0.0
    for split, share in shares:
        first, last = (round(end * len(order)) for end in (start, start + share))
        halves[split] = _half(images, numbers, classes, order[first:last])
        start += share
    return halves


def _half(
    images: NDArray[np.uint8], numbers: NDArray[np.uint8], classes: tuple[int, int], places: NDArray[np.int64]
) -> Half:
    first, second = (places[numbers[places] == number] for number in classes)
    return Half(images, (first, second))


def _pairs(top: Half, bottom: Half, together: float, random: Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the class of the digit and of the clothing of every image: as many of a class as both halves have.

    A share `together` of each class of clothing goes with its digit, and the rest with the other one.
    """
    sizes = [min(len(a), len(b)) for a, b in zip(top.places, bottom.places, strict=True)]
    clothing = np.repeat([0, 1], sizes)
    apart = np.concatenate([random.permutation(n) >= round(together * n) for n in sizes])
    return np.where(apart, 1 - clothing, clothing), clothing
