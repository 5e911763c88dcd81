"""AFR, automatic feature reweighting (Qiu et al., 2023): the last layer again, on held-out samples that ERM finds hard.

Departures: the last layer is solved to convergence, not stopped early by worst-group accuracy, which needs groups;
see docs/methods/afr.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import Config, ModelConfig
from sitar.data.base import Task, TrainBatch, TrainSplit, in_batches
from sitar.functional.last_layer import fit_last_layer
from sitar.functional.losses import cross_entropy
from sitar.methods.base import FitPhase, GradientPhase, NetworkMethod, Objective, Phase, hold_out
from sitar.registry import METHODS


class AFRConfig(Config):
    name: Literal["afr"] = "afr"
    held_out: float = Field(default=0.2, gt=0, lt=1, description="share of the training split kept for the last layer")
    gamma: float = Field(default=4.0, ge=0, description="how much more a sample weighs that the first stage gets wrong")
    pull: float = Field(default=0.01, ge=0, description="weight of the squared distance to the first stage (lambda)")


@METHODS.register("afr")
class AFR(NetworkMethod):
    Config = AFRConfig
    held_out: Tensor

    def __init__(self, config: AFRConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, model, task)
        self.register_buffer("held_out", hold_out(config.held_out, task))

    def phases(self) -> Iterator[Phase]:
        objective = Objective(self.loss, list(self.parameters()))
        yield GradientPhase("first", (objective,), indices=(~self.held_out).nonzero().squeeze(1))
        yield FitPhase("last layer", self.reweight)

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.logits(batch.x), batch.y)}

    def reweight(self, split: TrainSplit) -> None:
        index = self.held_out.nonzero().squeeze(1)
        y = split.y[index]
        features = in_batches(self.network.features, split.x[index.to(split.x.device)], y.device)
        last = self.network.last_layer
        weight = hardness(last(features).detach(), y, self.config.gamma)
        fitted = fit_last_layer(features, y, weight, last.weight, last.bias, self.config.pull)
        with torch.no_grad():
            last.weight.copy_(fitted[0])
            last.bias.copy_(fitted[1])


def hardness(logits: Tensor, y: Tensor, gamma: float) -> Tensor:
    """exp(-gamma p(y)) over the size of the sample's class, scaled to sum 1."""
    probability = logits.softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
    weight = torch.exp(-gamma * probability) / torch.bincount(y)[y]
    return weight / weight.sum()
