"""ColorMNIST: MNIST in two classes, with a colour that agrees with the label more often than the shape does.

Label 0 is for digits 0-4 and 1 for 5-9, flipped with probability `label_noise`; the colour is the label flipped with
probability 1 - rho: green for 0, red for 1. In `ood_test` and `val_ood` the colour agrees with probability 1 - rho.

Environments, for methods that are given them, are the samples whose colour agrees with the label and those whose colour
does not.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from sitar.config import Config
from sitar.data.benchmarks.mnist_files import CHECKSUM, load_mnist
from sitar.data.types import Data, EvalSplit, TrainGroups, TrainSplit
from sitar.registry import DATASETS

CLASSES = ("digits 0-4", "digits 5-9")
COLORS = ("green", "red")
NUM_TRAIN = 50_000
NUM_EVAL = 10_000  # of each evaluation split


class ColorMNISTConfig(Config):
    name: Literal["color_mnist"] = "color_mnist"
    refused = {"majority_only": "ColorMNIST draws its colours by data.rho, and data.rho=1.0 is the strict regime"}
    removed = {"variant": "paper"}
    rho: float = Field(default=0.9, ge=0, le=1, description="share of samples whose colour agrees with the label")
    label_noise: float = Field(default=0.25, ge=0, le=0.5, description="probability that a label is flipped")
    image_size: Literal[28, 14] = Field(default=28, description="14 averages 2x2 pixels")
    train_size: int = Field(default=NUM_TRAIN, ge=0, le=NUM_TRAIN, description="use only the first so many")
    eval_size: int = Field(default=NUM_EVAL, ge=1, le=NUM_EVAL, description="use only so many of each other split")
    seed: int = Field(default=0, ge=0, description="of the permutation, labels and colours: not the run's seed")
    root: str | None = Field(default=None, description="folder with MNIST's four files; null: the embedded copy")


@DATASETS.register("color_mnist")
class ColorMNIST:
    Config = ColorMNISTConfig
    licence = "MNIST's: CC BY-SA 3.0"
    citation = "LeCun et al., 1998; Arjovsky et al., Invariant Risk Minimization, 2019"
    homepage = "https://arxiv.org/abs/1907.02893"

    @staticmethod
    def load(config: ColorMNISTConfig) -> Data:
        return _data(config)


def _data(config: ColorMNISTConfig) -> Data:
    mnist = load_mnist(config.root)
    order = np.random.default_rng((config.seed, 0)).permutation(len(mnist.train_digits))
    first, rest = order[:NUM_TRAIN], order[NUM_TRAIN:]

    used = slice(config.train_size)
    y, color, _ = (bits[used] for bits in _labels(mnist.train_digits[first], config, stream=1))
    images = _shrink(mnist.train_images[first[used]], config.image_size)
    train, share = TrainSplit(_paint(images, color), torch.from_numpy(y)), _share(y, color)
    groups = _train_groups(y, color, environment=(y != color).astype(np.int64))

    evaluation: dict[str, EvalSplit] = {}
    for stream, inside, outside, images, digits in (
        (2, "val", "val_ood", mnist.train_images[rest], mnist.train_digits[rest]),
        (3, "id_test", "ood_test", mnist.test_images, mnist.test_digits),
    ):
        y, aligned, conflicting = (bits[: config.eval_size] for bits in _labels(digits, config, stream))
        for name, color in ((inside, aligned), (outside, conflicting)):
            painted = _paint(_shrink(images[: config.eval_size], config.image_size), color)
            evaluation[name] = _eval_split(painted, y, color, share)
    return Data(train, evaluation, CLASSES, CHECKSUM, groups, {"color": COLORS})


def _labels(
    digits: NDArray[np.uint8], config: ColorMNISTConfig, stream: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Noisy labels, and the colours of the same digits in and out of distribution."""
    random = np.random.default_rng((config.seed, stream))
    y = _flip(digits >= 5, config.label_noise, random)
    return y, _flip(y, 1 - config.rho, random), _flip(y, config.rho, random)


def _flip(bits: NDArray, probability: float | NDArray, random: Generator) -> NDArray[np.int64]:
    return (bits ^ (random.random(len(bits)) < probability)).astype(np.int64)


def _shrink(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    if size == 28:
        return images
    blocks = images.reshape(len(images), 14, 2, 14, 2).astype(np.uint16)
    return ((blocks.sum((2, 4)) + 2) // 4).astype(np.uint8)


def _paint(images: NDArray[np.uint8], color: NDArray[np.int64]) -> torch.Tensor:
    """Digits in the green channel where colour is 0, in the red where it is 1; the background stays black."""
    painted = np.zeros((len(images), 3, *images.shape[1:]), dtype=np.uint8)
    painted[np.arange(len(images)), 1 - color] = images
    return torch.from_numpy(painted)


def _group(y: NDArray[np.int64], color: NDArray[np.int64]) -> NDArray[np.int64]:
    return 2 * y + color


def _train_groups(y: NDArray[np.int64], color: NDArray[np.int64], environment: NDArray[np.int64]) -> TrainGroups:
    return TrainGroups(torch.from_numpy(_group(y, color)), torch.from_numpy(environment))


def _share(y: NDArray[np.int64], color: NDArray[np.int64]) -> tuple[float, ...]:
    counts = np.bincount(_group(y, color), minlength=4)
    return tuple((counts / max(1, counts.sum())).tolist())


def _eval_split(
    x: torch.Tensor, y: NDArray[np.int64], color: NDArray[np.int64], share: tuple[float, ...] | None
) -> EvalSplit:
    names = tuple(f"label={label},color={c}" for label in (0, 1) for c in (0, 1))
    return EvalSplit(x, torch.from_numpy(y), torch.from_numpy(_group(y, color)), names, share)
