"""Group DRO (Sagawa et al., 2020) minimises the loss of a mixture of groups that moves towards the worst one.

It needs the group of every training sample, so it is an upper bound, not a rival.

Departures: groups without samples, in training or in a batch; see docs/methods/group_dro.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig, NamedConfig
from sitar.data.types import GroupBatch, GroupTask
from sitar.functional.losses import sample_cross_entropy
from sitar.functional.reduce import global_mean
from sitar.functional.risk import group_risks
from sitar.methods.base import GradientPhase, NetworkMethod, Objective, Phase, equal_sampling
from sitar.registry import METHODS


class GroupDROConfig(NamedConfig):
    name: Literal["group_dro"] = "group_dro"
    step_size: float = Field(default=0.01, gt=0, description="of the mixture's exponentiated ascent (eta_q)")
    adjustment: float = Field(default=0.0, ge=0, description="C of the generalisation adjustment C / sqrt(n_g)")


@METHODS.register("group_dro")
class GroupDRO(NetworkMethod):
    Config = GroupDROConfig
    needs_groups = True
    mixture: Tensor
    adjustment: Tensor

    def __init__(self, config: GroupDROConfig, model: ModelConfig, task: GroupTask) -> None:
        super().__init__(config, model, task)
        counts = torch.bincount(task.group).float()
        self.group = task.group
        self.register_buffer("mixture", (counts > 0).float() / (counts > 0).sum())
        self.register_buffer("adjustment", config.adjustment / counts.clamp_min(1).sqrt())

    def phases(self) -> Iterator[Phase]:
        objective = Objective(self.loss, list(self.parameters()))
        yield GradientPhase("train", (objective,), sampling=equal_sampling(self.group))

    def loss(self, batch: GroupBatch) -> dict[str, Tensor]:
        losses = sample_cross_entropy(self.logits(batch.x), batch.y)
        risks, present = group_risks(losses, batch.group, len(self.mixture))
        ascent = self.config.step_size * (risks.detach() + self.adjustment) * present
        mixture = self.mixture * ascent.exp()
        mixture = mixture / mixture.sum()
        self.mixture.copy_(mixture)
        return {"loss": (mixture * risks).sum(), "cross_entropy": global_mean(losses.mean()), "mixture": mixture}
