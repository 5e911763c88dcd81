"""DivDis (Lee et al., 2023) trains heads of one network whose predictions on unlabelled inputs are independent.

Departures: unlabelled inputs are drawn with replacement; the head is chosen by a setting, or afterwards by answers
(docs/methods/divdis.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task, UnlabelledBatch
from sitar.functional.disagreement import marginal_divergence, mutual_information
from sitar.functional.reduce import global_mean
from sitar.methods.base import GradientPhase, Objective, Phase
from sitar.methods.several_heads import HeadsConfig, SharedHeads
from sitar.registry import METHODS


class DivDisConfig(HeadsConfig):
    name: Literal["divdis"] = "divdis"
    heads: int = Field(default=2, ge=2, le=64, description="heads on the shared network")
    diversity: float = Field(default=10.0, ge=0, description="weight of the heads' mutual information (lambda_1)")
    marginal: float = Field(
        default=10.0, ge=0, description="weight that keeps a head's classes as frequent as in training (lambda_2)"
    )


@METHODS.register("divdis")
class DivDis(SharedHeads):
    Config = DivDisConfig
    config: DivDisConfig

    def __init__(self, config: DivDisConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, model, task, config.heads)

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(self.loss, list(self.parameters())),))

    def loss(self, batch: UnlabelledBatch) -> dict[str, Tensor]:
        source = self.head_logits(batch.x)
        target = self.head_logits(batch.unlabelled).softmax(2)
        fit = self.source_loss(source, batch.y)
        information = mutual_information(target)
        divergence = marginal_divergence(target, global_mean(source.detach().softmax(2).mean((0, 1))))
        return {
            "loss": fit + self.config.diversity * information + self.config.marginal * divergence,
            "cross_entropy": fit,
            "mutual_information": information,
            "marginal_divergence": divergence,
        }
