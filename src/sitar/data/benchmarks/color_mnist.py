"""ColorMNIST is MNIST in two classes, with a colour that agrees with the label more often than the shape does.

Label 0 is for digits 0-4 and label 1 for digits 5-9. A label is flipped with probability `label_noise`. The colour is
the label, flipped with probability 1 - rho: green for 0 and red for 1. In `ood_test` and `val_ood` the colour agrees
with the label with probability 1 - rho. `train_rho` is another share for `train` and `val`: with 0.5 the colour tells
nothing there, and the tests stay as they are.

Environments, for methods that are given them, are the samples whose colour agrees with the label and those whose colour
does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from sitar.data.base import DataConfig, Dataset
from sitar.data.benchmarks.mnist_files import CHECKSUM, load_mnist
from sitar.data.sample_table import SampleTable
from sitar.data.types import Data
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS

CLASSES = ("digits 0-4", "digits 5-9")
COLORS = ("green", "red")
NUM_TRAIN = 50_000
NUM_EVAL = 10_000  # of each evaluation split


class ColorMNISTConfig(DataConfig):
    name: Literal["color_mnist"] = "color_mnist"
    refused = {"majority_only": "ColorMNIST draws its colours by data.rho, and data.rho=1.0 is the strict regime"}
    rho: float = Field(default=0.9, ge=0, le=1, description="share of samples whose colour agrees with the label")
    train_rho: float | None = Field(default=None, ge=0, le=1, description="the same of train and val; null: rho")
    label_noise: float = Field(default=0.25, ge=0, le=0.5, description="probability that a label is flipped")
    image_size: Literal[28, 14] = Field(default=28, description="14 averages 2x2 pixels")
    train_size: int = Field(default=NUM_TRAIN, ge=0, le=NUM_TRAIN, description="use only the first so many")
    eval_size: int = Field(default=NUM_EVAL, ge=1, le=NUM_EVAL, description="use only so many of each other split")
    seed: int = Field(default=0, ge=0, description="of the permutation, labels and colours: not the run's seed")
    root: str | None = Field(default=None, description="folder with MNIST's four files; null: the embedded copy")


@DATASETS.register("color_mnist")
class ColorMNIST(Dataset):
    Config = ColorMNISTConfig
    title = "ColorMNIST"
    layout = "nothing, as MNIST ships with the package; or MNIST's four files, packed or not"
    needs_files = False
    licence = "MNIST's: CC BY-SA 3.0"
    citation = "LeCun et al., 1998; Arjovsky et al., Invariant Risk Minimization, 2019"
    homepage = "https://arxiv.org/abs/1907.02893"

    @classmethod
    def samples(cls, config: ColorMNISTConfig) -> SampleTable:
        return _table(load_mnist(config.root).digits, config)

    @classmethod
    def load(cls, config: ColorMNISTConfig, watch: Watch = unwatched) -> Data:
        mnist = load_mnist(config.root)
        table = _table(mnist.digits, config)
        assert table.attribute is not None
        images = _paint(_shrink(mnist.images[table.files], config.image_size), table.attribute)
        # The checksum is that of MNIST's files: run folders have always held that one.
        return replace(table.to_data(images, CHECKSUM), checksum=CHECKSUM)


def _table(digits: NDArray[np.uint8], config: ColorMNISTConfig) -> SampleTable:
    """Draw the labels and the colours of digits, of which the last are those of MNIST's test files."""
    order = np.random.default_rng((config.seed, 0)).permutation(len(digits) - NUM_EVAL)
    test = np.arange(len(digits) - NUM_EVAL, len(digits))
    parts: list[tuple[str, NDArray, NDArray, NDArray]] = []  # split, places of the digits, labels, colours
    for stream, places, size, inside, outside in (
        (1, order[:NUM_TRAIN], config.train_size, "train", ""),
        (2, order[NUM_TRAIN:], config.eval_size, "val", "val_ood"),
        (3, test, config.eval_size, "id_test", "ood_test"),
    ):
        y, agreeing, disagreeing = _draw(digits[places], config, stream, inside)
        for split, color in ((inside, agreeing), (outside, disagreeing)):
            if split:
                parts.append((split, places[:size], y[:size], color[:size]))
    splits, places, labels, colors = zip(*parts, strict=True)
    return SampleTable(
        np.concatenate(places),
        np.concatenate(labels),
        np.repeat(splits, list(map(len, places))),
        CLASSES,
        np.concatenate(colors),
        "color",
        COLORS,
        frozenset({(0, 0), (1, 1)}),
    )


def _draw(
    digits: NDArray[np.uint8], config: ColorMNISTConfig, stream: int, split: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw noisy labels, and the colours of the same digits in and out of distribution."""
    random = np.random.default_rng((config.seed, stream))
    y = _flip(digits >= 5, config.label_noise, random)
    inside = config.rho if config.train_rho is None or split == "id_test" else config.train_rho
    return y, _flip(y, 1 - inside, random), _flip(y, config.rho, random)


def _flip(bits: NDArray, probability: float, random: Generator) -> NDArray[np.int64]:
    return (bits ^ (random.random(len(bits)) < probability)).astype(np.int64)


def _shrink(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    if size == 28:
        return images
    blocks = images.reshape(len(images), 14, 2, 14, 2).astype(np.uint16)
    return ((blocks.sum((2, 4)) + 2) // 4).astype(np.uint8)


def _paint(images: NDArray[np.uint8], color: NDArray[np.int64]) -> torch.Tensor:
    """Put digits into the green channel where the colour is 0, into the red one where it is 1. The rest is black."""
    painted = np.zeros((len(images), 3, *images.shape[1:]), dtype=np.uint8)
    painted[np.arange(len(images)), 1 - color] = images
    return torch.from_numpy(painted)
