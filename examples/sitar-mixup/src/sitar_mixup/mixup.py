"""Mixup (Zhang et al., ICLR 2018): train on weighted means of two samples and of their labels.

Departures: the share of a sample is uniform, the paper's Beta(1, 1). The two samples are neighbours in the batch.
Batches are drawn in random order, so a neighbour is a random partner.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.data.types import TrainBatch
from sitar.functional.losses import cross_entropy
from sitar.methods.base import NetworkMethod, WeightedConfig


class MixupConfig(WeightedConfig):
    """Settings of mixup."""

    name: Literal["mixup"] = "mixup"
    strength: float = Field(default=1.0, gt=0, le=1, description="largest share of the other sample")


class Mixup(NetworkMethod):
    """The network of ERM, trained on mixed samples."""

    Config = MixupConfig

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Mix every sample with its neighbour, and count the labels of both."""
        share = self.config.strength * torch.rand((), device=batch.x.device)
        logits = self.logits(torch.lerp(batch.x, batch.x.roll(1, 0), share))
        own, other = (cross_entropy(logits, y, self.class_weight) for y in (batch.y, batch.y.roll(1)))
        return {"loss": torch.lerp(own, other, share)}
