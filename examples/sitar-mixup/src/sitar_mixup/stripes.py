"""Stripes: horizontal or vertical ones, whose colour is a shortcut to their direction.

The images are drawn, so nobody needs files. In training a share `rho` of the images has the colour that goes with the
label: red for horizontal, blue for vertical. `val` and `id_test` are like training. In `val_ood` and `ood_test` a share
1 - rho has it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from sitar.config import NamedConfig
from sitar.data import Dataset
from sitar.data.sample_table import SampleTable
from sitar.data.types import Data
from sitar.progress import Watch, unwatched

PIXELS = 16


class StripesConfig(NamedConfig):
    """Settings of the dataset."""

    name: Literal["stripes"] = "stripes"
    rho: float = Field(default=0.95, ge=0, le=1, description="share of images whose colour goes with the label")
    train_size: int = Field(default=1000, ge=2)
    eval_size: int = Field(default=500, ge=2, description="images of each other split")
    noise: float = Field(default=60.0, ge=0, description="standard deviation of the noise, in grey values of 0 to 255")
    seed: int = Field(default=0, ge=0, description="of labels, colours and pixels: not the run's seed")


class Stripes(Dataset):
    """Images (3, 16, 16) of stripes in noise."""

    Config = StripesConfig
    title = "Stripes"
    layout = "nothing, as the images are drawn"
    setting = None
    needs_files = False
    licence = "MIT, as this package"

    @classmethod
    def samples(cls, config: StripesConfig) -> SampleTable:
        """Draw the label and the colour of every image."""
        sizes = {"train": config.train_size}
        sizes |= dict.fromkeys(("val", "val_ood", "id_test", "ood_test"), config.eval_size)
        split = np.repeat(list(sizes), list(sizes.values()))
        random = np.random.default_rng((config.seed, 0))
        label = random.integers(0, 2, len(split))
        rho = np.where(np.isin(split, ("val_ood", "ood_test")), 1 - config.rho, config.rho)
        color = np.where(random.random(len(split)) < rho, label, 1 - label)
        return SampleTable(
            files=np.arange(len(split)),
            label=label,
            split=split,
            classes=("horizontal", "vertical"),
            attribute=color,
            attribute_name="color",
            attribute_values=("red", "blue"),
            majority=frozenset({(0, 0), (1, 1)}),
        )

    @classmethod
    def load(cls, config: StripesConfig, watch: Watch = unwatched) -> Data:
        """Draw the images: two bright rows of four, turned where the label is 1, in the channel of the colour."""
        table = cls.samples(config)
        random = np.random.default_rng((config.seed, 1))
        images = random.normal(60, config.noise, (len(table), 3, PIXELS, PIXELS))
        phase = random.integers(0, 4, len(table))
        for image, vertical, color, shift in zip(images, table.label, table.attribute, phase, strict=True):
            bright = np.broadcast_to((np.arange(PIXELS) + shift) % 4 < 2, (PIXELS, PIXELS))
            image[2 * color] += 120 * (bright if vertical else bright.T)
        pixels = torch.from_numpy(images.round().clip(0, 255).astype(np.uint8))
        return table.to_data(pixels, "stripes")
