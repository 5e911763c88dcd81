"""LfF, learning from failure (Nam et al., 2020), trains a biased network, and one that learns what the first fails on.

Departures: none known from the authors' code. It has a factor q that their formula lacks. The factor only rescales the
loss, and we keep it. Network, optimiser and epochs are those of every method (docs/methods/lff.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task, TrainBatch
from sitar.functional.losses import sample_cross_entropy, weighted_mean
from sitar.functional.reduce import gathered, global_mean
from sitar.methods.base import Bottleneck, GradientPhase, Objective, Phase, WeightedConfig, WeightedMethod
from sitar.models.build import build_network
from sitar.registry import METHODS

EPS = 1e-8
UNSEEN = -1.0  # marks samples without a loss yet: losses are never negative


class LfFConfig(WeightedConfig):
    name: Literal["lff"] = "lff"
    q: float = Field(default=0.7, gt=0, le=1, description="how much the biased network prefers what is easy")
    decay: float = Field(default=0.7, ge=0, lt=1, description="of the running mean of each sample's loss")


@METHODS.register("lff")
class LfF(WeightedMethod):
    Config = LfFConfig
    biased_losses: Tensor
    debiased_losses: Tensor
    label: Tensor

    def __init__(self, config: LfFConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, task)
        self.num_classes = task.num_classes
        self.biased = build_network(model, task)
        self.debiased = build_network(model, task)
        self.register_buffer("biased_losses", torch.full((task.num_train,), UNSEEN))
        self.register_buffer("debiased_losses", torch.full((task.num_train,), UNSEEN))
        self.register_buffer("label", torch.zeros(task.num_train, dtype=torch.long))

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(self.loss, list(self.parameters())),))

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        biased, debiased = self.biased(batch.x), self.debiased(batch.x)
        biased_loss = sample_cross_entropy(biased, batch.y)
        debiased_loss = sample_cross_entropy(debiased, batch.y)

        self.label.copy_(self.label.scatter(0, gathered(batch.index), gathered(batch.y)))
        b = self.relative(self.biased_losses, biased_loss, batch)
        d = self.relative(self.debiased_losses, debiased_loss, batch)
        difficulty = b / (b + d + EPS)

        confidence = biased.detach().softmax(1).gather(1, batch.y.unsqueeze(1)).squeeze(1)
        weight = self.sample_weight(batch.y)  # not used above, where losses are relative to their class
        easy = weighted_mean(self.config.q * confidence**self.config.q * biased_loss, weight)
        hard = weighted_mean(difficulty * debiased_loss, weight)
        return {"loss": easy + hard, "biased": easy, "debiased": hard, "difficulty": global_mean(difficulty.mean())}

    def relative(self, table: Tensor, loss: Tensor, batch: TrainBatch) -> Tensor:
        """Update the running means of a network's losses, and return those of this batch.

        Each is divided by the largest one of its class over the whole training split.
        """
        old, new = table[batch.index], loss.detach().to(table)
        decay = self.config.decay
        mean = torch.where(old == UNSEEN, new, decay * old + (1 - decay) * new)
        table.copy_(table.scatter(0, gathered(batch.index), gathered(mean)))
        classes = torch.arange(self.num_classes, device=table.device)
        of_class = self.label == classes.unsqueeze(1)
        largest = torch.where(of_class, table, 0.0).amax(1)
        return table[batch.index] / largest[batch.y].clamp_min(EPS)

    def logits(self, x: Tensor) -> Tensor:
        return self.debiased(x)

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.debiased, self.debiased.classifier)
