"""AFR and DFR share this: ERM on a part of the training split, then a last layer that is fitted to the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.rows import select
from sitar.data.types import Task, TrainBatch, TrainSplit, in_batches
from sitar.functional.losses import cross_entropy
from sitar.memory import check_memory
from sitar.methods.base import FitPhase, GradientPhase, NetworkMethod, Objective, Phase, WeightedConfig

BYTES = 20  # of a feature while a last layer is fitted: in float32, in float64, and scaled


class LastLayerConfig(WeightedConfig):
    held_out: float = Field(default=0.2, gt=0, lt=1, description="share of the training split kept for the last layer")


class LastLayerMethod(NetworkMethod):
    """This method trains a network, and then fits its last layer. A subclass says to which weight and bias."""

    held_out: Tensor

    def __init__(self, config: LastLayerConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, model, task)
        self.register_buffer("held_out", hold_out(config.held_out, task.num_train))

    def phases(self) -> Iterator[Phase]:
        samples, width = int(self.held_out.sum()), self.network.last_layer.in_features
        check_memory(
            samples * width * BYTES,
            f"The last layer is fitted to {samples:,} held-out samples with {width:,} features each at once",
            f"Lower method.held_out, which is {self.config.held_out:g}.",
        )
        objective = Objective(self.loss, list(self.parameters()))
        yield GradientPhase("first", (objective,), indices=(~self.held_out).nonzero().squeeze(1), select=False)
        yield FitPhase("last layer", self.refit)

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.logits(batch.x), batch.y, self.class_weight)}

    def held_out_features(self, split: TrainSplit) -> tuple[Tensor, Tensor]:
        """Return the inputs of the last layer for the held-out samples, and their indices in `split`."""
        index = self.held_out.nonzero().squeeze(1)
        return in_batches(self.network.features, select(split.x, index), split.y.device, self.evaluation_batch), index

    def refit(self, split: TrainSplit) -> None:
        features, index = self.held_out_features(split)
        weight, bias = self.fit(features, index, split)
        with torch.no_grad():
            self.network.last_layer.weight.copy_(weight)
            self.network.last_layer.bias.copy_(bias)

    def fit(self, features: Tensor, index: Tensor, split: Any) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a last layer for the `features` of the samples of `split` at `index`."""
        raise NotImplementedError


def hold_out(share: float, samples: int) -> Tensor:
    """Return a mask of a random share of the samples: at least one and not all."""
    count = min(max(1, round(share * samples)), samples - 1)
    mask = torch.zeros(samples, dtype=torch.bool)
    mask[torch.randperm(samples)[:count]] = True
    return mask
