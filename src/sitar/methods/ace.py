"""ACE (Daniels et al., 2025) trains two heads to disagree, and surely so, where they come closest to it by themselves.

Departures: as many unlabelled as labelled inputs in a step, drawn with replacement; the share rises over a number of
epochs that is a setting (docs/methods/ace.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task, UnlabelledBatch
from sitar.functional.disagreement import disagreement_losses, smallest_mean
from sitar.methods.base import GradientPhase, Objective, Phase
from sitar.methods.several_heads import HeadsConfig, SharedHeads
from sitar.registry import METHODS


class ACEConfig(HeadsConfig):
    name: Literal["ace"] = "ace"
    head: Literal[0, 1] = Field(  # type: ignore[reportIncompatibleVariableOverride]
        default=0, description="which head predicts: the training data cannot tell which is right"
    )
    weight: float = Field(default=1.0, ge=0, description="of the disagreement on unlabelled inputs")
    mix_rate: float = Field(
        default=0.1, gt=0, le=1, description="share of unlabelled inputs on which heads disagree, at least"
    )
    rise_epochs: int = Field(default=5, ge=0, description="epochs over which this share rises from 0; 0: at once")
    each_pair: bool = Field(
        default=False,
        description="whether every pair of different labels has the same part of the share; else each input takes the "
        "pair that fits it best",
    )


@METHODS.register("ace")
class ACE(SharedHeads):
    Config = ACEConfig
    config: ACEConfig
    share: Tensor

    def __init__(self, config: ACEConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, model, task, heads=2)
        self.register_buffer("share", torch.tensor(config.mix_rate))

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(self.loss, list(self.parameters())),))

    def begin_epoch(self, epoch: int) -> None:
        risen = min(1.0, epoch / self.config.rise_epochs) if self.config.rise_epochs else 1.0
        self.share.fill_(risen * self.config.mix_rate)

    def loss(self, batch: UnlabelledBatch) -> dict[str, Tensor]:
        fit = self.source_loss(self.head_logits(batch.x), batch.y)
        losses = disagreement_losses(self.head_logits(batch.unlabelled).log_softmax(2))
        if self.config.each_pair:
            apart = smallest_mean(losses, self.share / losses.shape[1]).sum()
        else:
            apart = smallest_mean(losses.amin(1, keepdim=True), self.share).sum()
        return {"loss": fit + self.config.weight * apart, "cross_entropy": fit, "disagreement": apart}
