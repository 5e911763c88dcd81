"""This tiny generated dataset lets contract checks train in a second.

A bright bar in each image shows the class, and the colour of the bar is a shortcut. A share `rho` of the training
samples has the colour that goes with the label. `val` and `id_test` are like training; in `val_ood` and `ood_test` a
share 1 - rho has it. Some labels are wrong and some classes are rare, so that no method learns everything.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from sitar.data.base import DataConfig, Dataset
from sitar.data.sample_table import SampleTable
from sitar.data.types import Data
from sitar.progress import Watch, unwatched

NAME = "contract_toy"
PIXELS = 14


class ToyConfig(DataConfig):
    """These are the settings of the toy."""

    name: Literal["contract_toy"] = NAME
    classes: int = Field(default=2, ge=2, le=4)
    rho: float = Field(default=0.8, ge=0, le=1, description="share of samples whose colour goes with the label")
    train_size: int = Field(default=160, gt=1)
    eval_size: int = Field(default=80, gt=1, description="samples of each other split")


class Toy(Dataset):
    """The toy has images (3, 14, 14) of a bar in noise. The same settings give the same images."""

    Config = ToyConfig
    title = "Toy of the contract"
    layout = "nothing, as the images are drawn"
    setting = None
    needs_files = False
    licence = "that of this package"

    @classmethod
    def samples(cls, config: ToyConfig) -> SampleTable:
        """Draw the label and the colour of every sample."""
        random = np.random.default_rng(config.classes)
        sizes = {"train": config.train_size} | dict.fromkeys(
            ("val", "val_ood", "id_test", "ood_test"), config.eval_size
        )
        split = np.repeat(list(sizes), list(sizes.values()))
        n = len(split)
        label = random.integers(0, config.classes, n) * (random.random(n) < 0.8)  # class 0 has the most
        goes = random.random(n) < np.where(np.isin(split, ("val_ood", "ood_test")), 1 - config.rho, config.rho)
        return SampleTable(
            files=np.arange(n),
            label=label,
            split=split,
            classes=tuple(f"class {number}" for number in range(config.classes)),
            attribute=np.where(goes, label % 2, 1 - label % 2),
            attribute_name="color",
            attribute_values=("green", "red"),
            majority=frozenset((number, number % 2) for number in range(config.classes)),
        )

    @classmethod
    def load(cls, config: ToyConfig, watch: Watch = unwatched) -> Data:
        """Draw the images: a bar whose place shows the class, but for a fifth of them."""
        table = cls.samples(config)
        assert table.attribute is not None
        random = np.random.default_rng(0)
        images = random.integers(0, 90, (len(table), 3, PIXELS, PIXELS), dtype=np.uint8)
        place = np.where(random.random(len(table)) < 0.8, table.label, random.integers(0, config.classes, len(table)))
        for image, row, channel in zip(images, 3 * place, 1 - table.attribute, strict=True):
            image[channel, row : row + 3] += 150
        return table.to_data(torch.from_numpy(images), "0" * 64)
