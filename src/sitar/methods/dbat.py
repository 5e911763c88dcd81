"""D-BAT (Pagliardini et al., 2023) trains one model, and then a second that disagrees with it on unlabelled inputs.

Departures: two models, where the authors have up to five; unlabelled inputs are drawn with replacement
(docs/methods/dbat.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task, UnlabelledBatch
from sitar.functional.disagreement import agreement
from sitar.functional.losses import cross_entropy
from sitar.methods.base import Bottleneck, GradientPhase, Objective, Phase, settled
from sitar.methods.several_heads import HeadsConfig, SeveralHeads
from sitar.models import Network
from sitar.models.build import build_network
from sitar.registry import METHODS


class DBATConfig(HeadsConfig):
    name: Literal["dbat"] = "dbat"
    alpha: float = Field(default=1.0, ge=0, description="weight of the agreement with the first model")
    head: Literal[0, 1] = Field(  # type: ignore[reportIncompatibleVariableOverride]
        default=1, description="which model predicts: 0, the first one, or 1, the one that disagrees with it"
    )


@METHODS.register("dbat")
class DBAT(SeveralHeads):
    Config = DBATConfig
    config: DBATConfig

    def __init__(self, config: DBATConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, task, heads=2)
        self.first = build_network(model, task)
        self.second = build_network(model, task)

    def phases(self) -> Iterator[Phase]:
        first = Objective(self.first_loss, list(self.first.parameters()))
        yield GradientPhase("first", (first,), logits=self.first)
        second = Objective(self.second_loss, list(self.second.parameters()))
        yield GradientPhase("second", (second,), logits=self.second)

    def first_loss(self, batch: UnlabelledBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.first(batch.x), batch.y, self.class_weight)}

    def second_loss(self, batch: UnlabelledBatch) -> dict[str, Tensor]:
        with torch.no_grad(), settled(self.first):
            before = self.first(batch.unlabelled).softmax(1)
        fit = cross_entropy(self.second(batch.x), batch.y, self.class_weight)
        agrees = agreement(before, self.second(batch.unlabelled).softmax(1))
        return {"loss": fit + self.config.alpha * agrees, "cross_entropy": fit, "agreement": agrees}

    def head_logits(self, x: Tensor) -> Tensor:
        return torch.stack([self.first(x), self.second(x)], 1)

    def logits(self, x: Tensor) -> Tensor:
        return self._chosen(x)

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self._chosen, self._chosen.classifier)

    @property
    def _chosen(self) -> Network:
        return (self.first, self.second)[self.config.head]
