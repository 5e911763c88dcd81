"""JTT, just train twice (Liu et al., 2021), gives more weight, in a second training, to what a first model gets wrong.

Departures: none in the algorithm; network, optimiser, epochs and weight decay are those of every method, where the
authors have a strong weight decay. One preset has theirs (docs/methods/jtt.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task, TrainBatch
from sitar.functional.losses import cross_entropy
from sitar.functional.reduce import gathered, global_mean
from sitar.methods.base import Bottleneck, GradientPhase, Objective, Phase, WeightedConfig, WeightedMethod
from sitar.models.build import build_network
from sitar.registry import METHODS

logger = logging.getLogger(__name__)


class JTTConfig(WeightedConfig):
    name: Literal["jtt"] = "jtt"
    first_epochs: int = Field(default=1, gt=0, description="epochs of the first model; the last one marks errors (T)")
    copies: int = Field(default=20, gt=0, description="further copies of each error in the second stage (lambda)")


@METHODS.register("jtt")
class JTT(WeightedMethod):
    Config = JTTConfig
    wrong: Tensor

    def __init__(self, config: JTTConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, task)
        self.first = build_network(model, task)
        self.second = build_network(model, task)
        self.register_buffer("wrong", torch.zeros(task.num_train, dtype=torch.bool))

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase(
            "first",
            (Objective(self.first_loss, list(self.first.parameters())),),
            epochs=self.config.first_epochs,
            select=False,
            logits=self.first,
        )
        errors = self.wrong.nonzero().squeeze(1).cpu()
        _say(len(errors), len(self.wrong))
        weighed = errors if len(errors) < len(self.wrong) else errors[:0]
        yield GradientPhase(
            "second",
            (Objective(self.second_loss, list(self.second.parameters())),),
            indices=torch.cat([torch.arange(len(self.wrong)), weighed.repeat(self.config.copies)]),
            facts={"error_set": len(errors)},
        )

    def first_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the cross-entropy, and mark the errors that the weights of the moment make.

        Each epoch overwrites the marks of the last.
        """
        logits = self.first(batch.x)
        wrong = logits.detach().argmax(1) != batch.y
        self.wrong.copy_(self.wrong.scatter(0, gathered(batch.index), gathered(wrong)))
        loss = cross_entropy(logits, batch.y, self.class_weight)
        return {"loss": loss, "errors": global_mean(wrong.float().mean())}

    def second_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.second(batch.x), batch.y, self.class_weight)}

    def logits(self, x: Tensor) -> Tensor:
        return self.second(x)

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.second, self.second.classifier)


def _say(errors: int, samples: int) -> None:
    if errors == 0:
        logger.warning("JTT: the first model makes no error, so there is nothing to weigh: the second stage is ERM.")
    elif errors == samples:
        logger.warning("JTT: the first model is wrong on all samples, so none is special: the second stage is ERM.")
    else:
        logger.info("JTT: the error set has %d of %d samples.", errors, samples)
