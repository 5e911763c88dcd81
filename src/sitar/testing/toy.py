"""A tiny generated dataset on which contract checks train in a second.

A bright bar in each image shows the class, and the colour of the bar is a shortcut. A share `rho` of the training
samples has the colour that goes with the label. `val` and `id_test` are like training; in `val_ood` and `ood_test` a
share 1 - rho has it. Some labels are wrong and some classes are rare, so that no method learns everything.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from sitar.config import Config
from sitar.data.types import Data, EvalSplit, TrainGroups, TrainSplit

NAME = "contract_toy"
SIZE = 14
COLORS = ("green", "red")


class ToyConfig(Config):
    """Settings of the toy."""

    name: Literal["contract_toy"] = NAME
    classes: int = Field(default=2, ge=2, le=4)
    rho: float = Field(default=0.8, ge=0, le=1)
    train_size: int = Field(default=160, gt=1)
    eval_size: int = Field(default=80, gt=1)


class Toy:
    """Images (3, 14, 14) of a bar in noise."""

    Config = ToyConfig

    @staticmethod
    def load(config: ToyConfig) -> Data:
        """Draw all splits. The same settings give the same images."""
        random = np.random.default_rng(config.classes)
        names = tuple(f"label={label},color={color}" for label in range(config.classes) for color in (0, 1))

        def draw(n: int, rho: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            bar = random.integers(0, config.classes, n) * (random.random(n) < 0.8)  # class 0 has the most
            label = np.where(random.random(n) < 0.2, random.integers(0, config.classes, n), bar)
            color = (label % 2) ^ (random.random(n) >= rho)
            images = random.integers(0, 90, (n, 3, SIZE, SIZE))
            for image, row, channel in zip(images, 3 * bar, 1 - color, strict=True):
                image[channel, row : row + 3] += 150
            return torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(label), torch.from_numpy(color)

        x, y, color = draw(config.train_size, config.rho)
        groups = TrainGroups(2 * y + color, (y % 2 != color).long())
        share = tuple((torch.bincount(groups.group, minlength=len(names)) / len(y)).tolist())
        evaluation = {}
        for name in ("val", "val_ood", "id_test", "ood_test"):
            images, label, color = draw(config.eval_size, 1 - config.rho if "ood" in name else config.rho)
            evaluation[name] = EvalSplit(images, label, 2 * label + color, names, share)
        classes = tuple(f"class {label}" for label in range(config.classes))
        return Data(TrainSplit(x, y), evaluation, classes, "0" * 64, groups, {"color": COLORS})
