"""AFR, automatic feature reweighting (Qiu et al., 2023), refits the last layer on held-out samples that ERM finds hard.

Departures: the run's criterion chooses the epoch of the last layer, or it is solved to convergence. The authors stop
early by worst-group accuracy, which needs groups, and take clipped full-batch steps. See docs/methods/afr.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task, TrainBatch, TrainSplit
from sitar.functional.last_layer import fit_last_layer
from sitar.functional.losses import sample_cross_entropy
from sitar.methods.base import FitPhase, GradientPhase, Objective, Phase
from sitar.methods.last_layer import LastLayerConfig, LastLayerMethod
from sitar.registry import METHODS


class AFRConfig(LastLayerConfig):
    name: Literal["afr"] = "afr"
    gamma: float = Field(default=4.0, ge=0, description="how much more a sample weighs that the first stage gets wrong")
    l2: float = Field(default=0.01, ge=0, description="weight of the squared distance to the first stage (lambda)")
    last_epochs: int | None = Field(
        default=None,
        gt=0,
        description="epochs of the last layer, of which train.selection chooses one; null: solved to convergence",
    )
    last_rate: float = Field(default=1e-3, gt=0, description="learning rate of these epochs")


@METHODS.register("afr")
class AFR(LastLayerMethod):
    Config = AFRConfig
    config: AFRConfig
    hard: Tensor
    first_weight: Tensor
    first_bias: Tensor

    def __init__(self, config: AFRConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, model, task)
        last, stepwise = self.network.last_layer, config.last_epochs is not None
        self.register_buffer("hard", torch.zeros(task.num_train) if stepwise else None)
        self.register_buffer("first_weight", torch.zeros_like(last.weight) if stepwise else None)
        self.register_buffer("first_bias", torch.zeros_like(last.bias) if stepwise else None)

    def phases(self) -> Iterator[Phase]:
        first, solve = super().phases()
        yield first
        if self.config.last_epochs is None:
            yield solve
            return
        yield FitPhase("hardness", self.weigh)
        yield GradientPhase(
            "last layer",
            (Objective(self.last_loss, list(self.network.last_layer.parameters()), self._settings()),),
            epochs=self.config.last_epochs,
            indices=self.held_out.nonzero().squeeze(1),
        )

    def _settings(self) -> dict[str, float]:
        return {"learning_rate": self.config.last_rate, "weight_decay": 0.0}

    def weigh(self, split: TrainSplit) -> None:
        """Remember how hard each held-out sample is for the first stage, relative to their mean, and its last layer."""
        features, index = self.held_out_features(split)
        last = self.network.last_layer
        with torch.no_grad():
            self.hard[index] = len(index) * hardness(last(features), split.y[index], self.config.gamma)
            self.first_weight.copy_(last.weight)
            self.first_bias.copy_(last.bias)

    def last_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Return a loss whose expectation is the objective that `fit` solves."""
        last = self.network.last_layer
        with torch.no_grad(), self.settled():
            features = self.network.features(batch.x)
        hard = (self.hard[batch.index] * sample_cross_entropy(last(features), batch.y)).mean()
        away = (last.weight - self.first_weight).square().sum() + (last.bias - self.first_bias).square().sum()
        return {"loss": hard + self.config.l2 * away, "hard": hard, "away": away}

    def fit(self, features: Tensor, index: Tensor, split: TrainSplit) -> tuple[Tensor, Tensor]:
        y, last = split.y[index], self.network.last_layer
        weight = hardness(last(features).detach(), y, self.config.gamma)
        return fit_last_layer(features, y, weight, last.weight, last.bias, l2=self.config.l2)


def hardness(logits: Tensor, y: Tensor, gamma: float) -> Tensor:
    """Return exp(-gamma p(y)) divided by the size of the sample's class, scaled to sum 1."""
    probability = logits.softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
    weight = torch.exp(-gamma * probability) / torch.bincount(y)[y]
    return weight / weight.sum()
