"""A method in a file of its own: label smoothing (Szegedy et al., CVPR 2016).

sitar train color_mnist/erm --import examples/label_smoothing.py --set method.name=label_smoothing
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from sitar.config import NamedConfig
from sitar.data.types import TrainBatch
from sitar.methods.base import NetworkMethod
from sitar.registry import METHODS


class LabelSmoothingConfig(NamedConfig):
    """Settings of label smoothing."""

    name: Literal["label_smoothing"] = "label_smoothing"
    smoothing: float = Field(default=0.1, ge=0, lt=1, description="share of the label that all classes get equally")


@METHODS.register("label_smoothing")
class LabelSmoothing(NetworkMethod):
    """The network of ERM, trained on labels that are not quite sure."""

    Config = LabelSmoothingConfig

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the cross-entropy with smoothed labels."""
        return {"loss": cross_entropy(self.logits(batch.x), batch.y, label_smoothing=self.config.smoothing)}
