"""A uniform Jacobian penalty (Hoffman et al., 2019) adds lambda/2 |J|^2 to the cross-entropy.

J is the Jacobian of the logits by the input. This is the control for SITAR's targeting: it flattens the classifier in
every direction alike.

Departures: batch normalisation is frozen inside the penalty; see docs/methods/jacobian.md.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from sitar.data.types import TrainBatch
from sitar.functional.losses import cross_entropy
from sitar.functional.smoothness import jacobian_norm
from sitar.methods.base import NetworkMethod, WeightedConfig, settled
from sitar.registry import METHODS


class JacobianConfig(WeightedConfig):
    name: Literal["jacobian"] = "jacobian"
    lambda_: float = Field(default=0.01, ge=0, alias="lambda", description="weight of the penalty (lambda_JR)")
    projections: int = Field(default=1, gt=0, description="random projections a sample (n_proj)")


@METHODS.register("jacobian")
class Jacobian(NetworkMethod):
    Config = JacobianConfig

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        fit = cross_entropy(self.logits(batch.x), batch.y, self.class_weight)
        with settled(self):
            slope = jacobian_norm(self.logits, batch.x, self.config.projections)
        return {"loss": fit + self.config.lambda_ / 2 * slope, "cross_entropy": fit, "jacobian": slope}
