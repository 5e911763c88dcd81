"""DivDis, D-BAT and ACE share this: several heads fit the training data, and differ on unlabelled inputs.

Nothing in the training data tells which head is right, so the setting `head` names the one that predicts.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from sitar.config import ModelConfig
from sitar.data.types import Task
from sitar.errors import ConfigError
from sitar.functional.losses import cross_entropy
from sitar.methods.base import Bottleneck, WeightedConfig, WeightedMethod
from sitar.models.build import build_network


class HeadsConfig(WeightedConfig):
    head: int = Field(
        default=0, ge=0, description="which head predicts, counted from 0: the training data cannot tell which is right"
    )


class SeveralHeads(WeightedMethod):
    """This method has several heads, of which one predicts. A subclass says how they come to differ."""

    needs_unlabelled = True
    heads: int

    def __init__(self, config: HeadsConfig, task: Task, heads: int) -> None:
        super().__init__(config, task)
        if config.head >= heads:
            raise ConfigError(f"method.head={config.head}: there are {heads} heads, counted from 0.")
        self.heads = heads

    def head_logits(self, x: Tensor) -> Tensor:
        """Return the class scores of every head: (batch, head, class)."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        return self.head_logits(x)[:, self.config.head]


class SharedHeads(SeveralHeads):
    """The heads are last layers of one network: its output is that of all heads, side by side."""

    def __init__(self, config: HeadsConfig, model: ModelConfig, task: Task, heads: int) -> None:
        super().__init__(config, task, heads)
        self.network = build_network(model, replace(task, num_classes=heads * task.num_classes))

    def head_logits(self, x: Tensor) -> Tensor:
        return self._apart(self.network(x))

    def source_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy of all heads on labelled samples, as a mean over the heads."""
        return cross_entropy(logits.flatten(0, 1), y.repeat_interleave(self.heads), self.class_weight)

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.network, lambda z: self._apart(self.network.classifier(z))[:, self.config.head])

    def _apart(self, outputs: Tensor) -> Tensor:
        return outputs.unflatten(1, (self.heads, -1))
