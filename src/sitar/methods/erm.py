"""Empirical risk minimisation: plain cross-entropy on the encoder and classifier that SITAR uses.

Departures: none. The encoder ends in the linear layer that is the posterior mean elsewhere; there is no decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from torch import Tensor, nn

from sitar.config import Config, ModelConfig
from sitar.data.base import Task, TrainBatch
from sitar.functional.losses import cross_entropy
from sitar.methods.base import (
    GradientPhase,
    Method,
    Objective,
    Phase,
    balanced_weights,
    build_classifier,
    build_encoder,
)
from sitar.registry import METHODS


class ERMConfig(Config):
    name: Literal["erm"] = "erm"
    class_weight: Literal["balanced"] | None = None


@METHODS.register("erm")
class ERM(Method):
    Config = ERMConfig
    class_weight: Tensor | None

    def __init__(self, config: ERMConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        self.encoder = build_encoder(model, task)
        self.mean = nn.Linear(self.encoder.out_features, model.latent_dim)
        self.classifier = build_classifier(model, task)
        self.register_buffer("class_weight", balanced_weights(task) if config.class_weight else None)

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(self.loss, list(self.parameters())),))

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.logits(batch.x), batch.y, self.class_weight)}

    def logits(self, x: Tensor) -> Tensor:
        return self.classifier(self.mean(self.encoder(x)))
