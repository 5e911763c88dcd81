"""CVaR-DRO (Levy et al., 2020) minimises the mean loss of the worst share of every batch.

Departures: the share is taken of each batch, which is the authors' plain estimator; no multilevel variant.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from sitar.data.types import TrainBatch
from sitar.functional.losses import sample_cross_entropy, weighted_mean
from sitar.functional.risk import cvar
from sitar.methods.base import NetworkMethod, WeightedConfig
from sitar.registry import METHODS


class CVaRDROConfig(WeightedConfig):
    name: Literal["cvar_dro"] = "cvar_dro"
    share: float = Field(default=0.5, gt=0, le=1, description="share of a batch that counts, the worst first (alpha)")


@METHODS.register("cvar_dro")
class CVaRDRO(NetworkMethod):
    Config = CVaRDROConfig

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        losses = sample_cross_entropy(self.logits(batch.x), batch.y)
        weight = self.sample_weight(batch.y)
        return {"loss": cvar(losses, self.config.share, weight), "cross_entropy": weighted_mean(losses, weight)}
