"""IRM and V-REx share a penalty on differences between environments, which sets in after some epochs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import GroupBatch, GroupTask
from sitar.functional.risk import group_risks
from sitar.methods.base import GradientPhase, NetworkMethod, Objective, Phase, WeightedConfig, equal_sampling


class InvariantConfig(WeightedConfig):
    penalty: float = Field(default=1e4, ge=0, description="weight of the penalty, once it has set in")
    penalty_from_epoch: int = Field(default=5, ge=0, description="epochs in which the penalty's weight is at most 1")


class InvariantMethod(NetworkMethod):
    """The loss is the mean risk of the environments + weight * penalty.

    It is divided by the weight if that is above 1, as the authors of both methods do, to keep the size of the gradient.
    """

    needs_groups = True
    penalty_weight: Tensor

    def __init__(self, config: InvariantConfig, model: ModelConfig, task: GroupTask) -> None:
        super().__init__(config, model, task)
        self.environment = task.environment
        self.num_environments = int(task.environment.max()) + 1
        self.register_buffer("penalty_weight", torch.tensor(config.penalty))

    def phases(self) -> Iterator[Phase]:
        objective = Objective(self.loss, list(self.parameters()))
        yield GradientPhase("train", (objective,), sampling=equal_sampling(self.environment))

    def begin_epoch(self, epoch: int) -> None:
        late = epoch >= self.config.penalty_from_epoch
        self.penalty_weight.fill_(self.config.penalty if late else min(1.0, self.config.penalty))

    def means(self, values: Tensor, batch: GroupBatch) -> tuple[Tensor, Tensor]:
        """Return the mean of each environment's samples, and which environments the batch has."""
        return group_risks(values, batch.environment, self.num_environments, self.sample_weight(batch.y))

    def penalised(self, risk: Tensor, penalty: Tensor) -> dict[str, Tensor]:
        loss = (risk + self.penalty_weight * penalty) / self.penalty_weight.clamp_min(1)
        return {"loss": loss, "cross_entropy": risk, "penalty": penalty}

    def loss(self, batch: GroupBatch) -> dict[str, Tensor]:
        raise NotImplementedError
