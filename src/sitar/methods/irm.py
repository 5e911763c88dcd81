"""IRM (Arjovsky et al., 2019), version 1, asks that the best last scale is 1 in every environment.

It needs the environment of every training sample, so it is an upper bound, not a rival.

Departures: minibatches, drawn equally from the environments, instead of full batches; see docs/methods/irm.md.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sitar.data.types import GroupBatch
from sitar.functional.losses import sample_cross_entropy
from sitar.functional.risk import mean_risk, scale_gradient
from sitar.methods.invariant import InvariantConfig, InvariantMethod
from sitar.registry import METHODS


class IRMConfig(InvariantConfig):
    name: Literal["irm"] = "irm"


@METHODS.register("irm")
class IRM(InvariantMethod):
    Config = IRMConfig

    def loss(self, batch: GroupBatch) -> dict[str, Tensor]:
        logits = self.logits(batch.x)
        risks, present = self.means(sample_cross_entropy(logits, batch.y), batch)
        slopes, _ = self.means(scale_gradient(logits, batch.y), batch)
        return self.penalised(mean_risk(risks, present), mean_risk(slopes.square(), present))
