"""AFR, automatic feature reweighting (Qiu et al., 2023): the last layer again, on held-out samples that ERM finds hard.

Departures: the last layer is solved to convergence, not stopped early by worst-group accuracy, which needs groups;
see docs/methods/afr.md.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.data.base import TrainSplit
from sitar.functional.last_layer import fit_last_layer
from sitar.methods.last_layer import LastLayerConfig, LastLayerMethod
from sitar.registry import METHODS


class AFRConfig(LastLayerConfig):
    name: Literal["afr"] = "afr"
    gamma: float = Field(default=4.0, ge=0, description="how much more a sample weighs that the first stage gets wrong")
    pull: float = Field(default=0.01, ge=0, description="weight of the squared distance to the first stage (lambda)")


@METHODS.register("afr")
class AFR(LastLayerMethod):
    Config = AFRConfig

    def fit(self, features: Tensor, index: Tensor, split: TrainSplit) -> tuple[Tensor, Tensor]:
        y, last = split.y[index], self.network.last_layer
        weight = hardness(last(features).detach(), y, self.config.gamma)
        return fit_last_layer(features, y, weight, last.weight, last.bias, self.config.pull)


def hardness(logits: Tensor, y: Tensor, gamma: float) -> Tensor:
    """exp(-gamma p(y)) over the size of the sample's class, scaled to sum 1."""
    probability = logits.softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
    weight = torch.exp(-gamma * probability) / torch.bincount(y)[y]
    return weight / weight.sum()
