"""Empirical risk minimisation (ERM) minimises plain cross-entropy, with the encoder and classifier that SITAR uses.

Departures: none. The encoder ends in the linear layer that is the posterior mean elsewhere; there is no decoder.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sitar.data.types import TrainBatch
from sitar.functional.losses import cross_entropy
from sitar.methods.base import NetworkMethod, WeightedConfig
from sitar.registry import METHODS


class ERMConfig(WeightedConfig):
    name: Literal["erm"] = "erm"


@METHODS.register("erm")
class ERM(NetworkMethod):
    Config = ERMConfig

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.logits(batch.x), batch.y, self.class_weight)}
