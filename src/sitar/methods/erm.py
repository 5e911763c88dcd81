"""Empirical risk minimisation: plain cross-entropy on the encoder and classifier that SITAR uses.

Departures: none. The encoder ends in the linear layer that is the posterior mean elsewhere; there is no decoder.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sitar.config import Config, ModelConfig
from sitar.data.base import Task, TrainBatch
from sitar.functional.losses import cross_entropy
from sitar.methods.base import NetworkMethod, balanced_weights
from sitar.registry import METHODS


class ERMConfig(Config):
    name: Literal["erm"] = "erm"
    class_weight: Literal["balanced"] | None = None


@METHODS.register("erm")
class ERM(NetworkMethod):
    Config = ERMConfig
    class_weight: Tensor | None

    def __init__(self, config: ERMConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, model, task)
        self.register_buffer("class_weight", balanced_weights(task) if config.class_weight else None)

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.logits(batch.x), batch.y, self.class_weight)}
