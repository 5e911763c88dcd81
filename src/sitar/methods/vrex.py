"""V-REx (Krueger et al., 2021) asks that the risk is the same in every environment.

It needs the environment of every training sample, so it is an upper bound, not a rival.

Departures: minibatches, drawn equally from the environments, instead of full batches; a weight of the authors' code is
twice as large here; see docs/methods/vrex.md.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sitar.data.types import GroupBatch
from sitar.functional.losses import sample_cross_entropy
from sitar.functional.risk import mean_risk, risk_variance
from sitar.methods.invariant import InvariantConfig, InvariantMethod
from sitar.registry import METHODS


class VRExConfig(InvariantConfig):
    name: Literal["vrex"] = "vrex"


@METHODS.register("vrex")
class VREx(InvariantMethod):
    Config = VRExConfig

    def loss(self, batch: GroupBatch) -> dict[str, Tensor]:
        risks, present = self.means(sample_cross_entropy(self.logits(batch.x), batch.y), batch)
        return self.penalised(mean_risk(risks, present), risk_variance(risks, present))
