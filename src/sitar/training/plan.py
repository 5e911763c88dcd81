"""Plan a gradient phase: which samples each step sees, for how many epochs, and at which learning rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from sitar.config import RunConfig, TrainConfig
from sitar.methods.base import GradientPhase
from sitar.training.optimise import build_optimiser, learning_rate
from sitar.training.seeding import epoch_order


@dataclass(frozen=True)
class Plan:
    """A plan holds the epochs of a phase. A resumed run makes the same plan, from its settings alone."""

    phase: GradientPhase
    number: int  # of the phase, counted from 0
    seed: int
    indices: Tensor  # of the training samples that make an epoch
    batch_size: int
    steps: int  # of an epoch
    epochs: int
    evaluate_every: int  # epochs
    shuffle: Literal["samples", "blocks"]
    settings: tuple[TrainConfig, ...]  # of the optimiser of each objective

    def optimisers(self, device: torch.device) -> list[Optimizer]:
        """Build a new optimiser for each objective."""
        pairs = zip(self.settings, self.phase.objectives, strict=True)
        return [build_optimiser(own, objective.parameters, device) for own, objective in pairs]

    def order(self, epoch: int) -> Tensor:
        """Return which samples each step of an epoch sees: (step, batch)."""
        return epoch_order(
            self.indices,
            self.batch_size,
            seed=self.seed,
            phase=self.number,
            epoch=epoch,
            sampling=self.phase.sampling,
            shuffle=self.shuffle,
        )

    def rates(self, step: int) -> list[float]:
        """Return the learning rate of each optimiser at a step, counted from the start of the phase."""
        return [learning_rate(own, step, self.steps, self.epochs) for own in self.settings]

    def is_evaluated(self, epoch: int) -> bool:
        """Say whether an epoch is followed by an evaluation. The last one always is."""
        return (epoch + 1) % self.evaluate_every == 0 or epoch + 1 == self.epochs


def plan_phase(phase: GradientPhase, number: int, num_train: int, config: RunConfig) -> Plan:
    """Plan a phase over `num_train` training samples, or over those of them that it names."""
    train = config.train
    indices = torch.arange(num_train) if phase.indices is None else phase.indices.cpu()
    batch_size = min(train.batch_size, len(indices))
    steps = math.ceil(len(indices) / batch_size)
    return Plan(
        phase=phase,
        number=number,
        seed=config.seed,
        indices=indices,
        batch_size=batch_size,
        steps=steps,
        epochs=phase.epochs or max(train.epochs, math.ceil(train.least_steps / steps)),
        evaluate_every=train.evaluate_every,
        shuffle=train.shuffle,
        settings=tuple(train.model_copy(update=dict(objective.settings)) for objective in phase.objectives),
    )
