"""AFR, automatic feature reweighting (Qiu et al., 2023), refits the last layer on held-out samples that ERM finds hard.

The last layer takes the authors' steps, or epochs from which the run's criterion chooses, or it is solved.

Departures: the authors also stop early by worst-group accuracy, which needs groups. See docs/methods/afr.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task, TrainBatch, TrainSplit
from sitar.functional.last_layer import approach_last_layer, fit_last_layer
from sitar.functional.losses import sample_cross_entropy
from sitar.functional.reduce import global_mean
from sitar.methods.base import FitPhase, GradientPhase, Objective, Phase, settled
from sitar.methods.last_layer import LastLayerConfig, LastLayerMethod
from sitar.registry import METHODS


class AFRConfig(LastLayerConfig):
    name: Literal["afr"] = "afr"
    gamma: float = Field(default=4.0, ge=0, description="how much more a sample weighs that the first stage gets wrong")
    l2: float = Field(default=0.01, ge=0, description="weight of the squared distance to the first stage (lambda)")
    last_epochs: int | None = Field(
        default=None,
        gt=0,
        description="epochs of the last layer, of which train.selection chooses one; null: see last_steps",
    )
    last_steps: int | None = Field(
        default=None,
        gt=0,
        description="full-batch steps of the last layer, as the authors'; null: solved to convergence",
    )
    last_rate: float = Field(default=1e-3, gt=0, description="learning rate of these epochs or steps")

    @model_validator(mode="after")
    def _epochs_or_steps(self) -> AFRConfig:
        if self.last_epochs is not None and self.last_steps is not None:
            raise ValueError("the last layer takes epochs or steps, not both: leave last_epochs or last_steps out")
        return self


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
        with torch.no_grad(), settled(self):
            features = self.network.features(batch.x)
        hard = global_mean((self.hard[batch.index] * sample_cross_entropy(last(features), batch.y)).mean())
        away = (last.weight - self.first_weight).square().sum() + (last.bias - self.first_bias).square().sum()
        return {"loss": hard + self.config.l2 * away, "hard": hard, "away": away}

    def fit(self, features: Tensor, index: Tensor, split: TrainSplit) -> tuple[Tensor, Tensor]:
        y, last = split.y[index], self.network.last_layer
        weight = hardness(last(features).detach(), y, self.config.gamma)
        problem, l2 = (features, y, weight, last.weight, last.bias), self.config.l2
        if self.config.last_steps is None:
            return fit_last_layer(*problem, l2=l2)
        return approach_last_layer(*problem, l2=l2, steps=self.config.last_steps, rate=self.config.last_rate)


def hardness(logits: Tensor, y: Tensor, gamma: float) -> Tensor:
    """Return exp(-gamma p(y)) divided by the size of the sample's class, scaled to sum 1."""
    probability = logits.softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
    weight = torch.exp(-gamma * probability) / torch.bincount(y)[y]
    return weight / weight.sum()
