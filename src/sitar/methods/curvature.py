"""A curvature penalty (Moosavi-Dezfooli et al., 2019) adds gamma |grad(x + h d) - grad(x)|^2 to the cross-entropy.

The gradient is that of the loss by the input. This is the control for SITAR's curvature term: it flattens the loss in
the direction of its own gradient, not along suspects.

Departures: no pretrained start, no schedule of h, which is in units of pixels; see docs/methods/curvature.md.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from sitar.data.types import TrainBatch
from sitar.functional.losses import cross_entropy, sample_cross_entropy
from sitar.functional.smoothness import gradient_change
from sitar.methods.base import NetworkMethod, WeightedConfig, settled
from sitar.registry import METHODS


class CurvatureConfig(WeightedConfig):
    name: Literal["curvature"] = "curvature"
    gamma: float = Field(default=4.0, ge=0, description="weight of the penalty")
    step: float = Field(default=1.5, gt=0, description="length of the step over which the gradient may not change (h)")


@METHODS.register("curvature")
class Curvature(NetworkMethod):
    Config = CurvatureConfig

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        fit = cross_entropy(self.logits(batch.x), batch.y, self.class_weight)

        def total(x: Tensor) -> Tensor:
            return sample_cross_entropy(self.logits(x), batch.y).sum()

        with settled(self):
            bend = gradient_change(total, batch.x, self.config.step)
        return {"loss": fit + self.config.gamma * bend, "cross_entropy": fit, "curvature": bend}
