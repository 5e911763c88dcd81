"""Run one training step on data that lies on the device: eagerly, or with the whole step captured as a CUDA graph.

A step gathers its batch, runs every objective (loss, gradient, optimiser) and adds the loss terms to running sums. It
reads its place in the epoch from tensors on the device, so that a captured step is a single launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from sitar.config import TrainConfig
from sitar.data.types import TrainSplit
from sitar.functional.augment import crop_and_flip
from sitar.methods.base import Objective
from sitar.training.optimise import set_learning_rate

WARM_UP_STEPS = 3


class EagerStep:
    """An eager step runs operation by operation. It is the reference that a captured step must agree with."""

    def __init__(
        self,
        objectives: Sequence[Objective],
        optimisers: Sequence[Optimizer],
        split: TrainSplit,
        *,
        batch_size: int,
        steps: int,
        device: torch.device,
        config: TrainConfig,
    ) -> None:
        self.objectives = objectives
        self.optimisers = optimisers
        self.split = split
        self.config = config
        self.device = device
        self.order = torch.zeros(steps, batch_size, dtype=torch.long, device=self.device)
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.rates: Sequence[float] = ()
        self.sums: dict[str, Tensor] = {}

    def begin_epoch(self, order: Tensor) -> None:
        """Begin an epoch. `order` (step, batch) says which samples each step sees."""
        self.order.copy_(order)
        self.position.zero_()
        for total in self.sums.values():
            total.zero_()

    def __call__(self, rates: Sequence[float]) -> None:
        """Run the next step of the epoch, each optimiser at its learning rate."""
        self._set(rates)
        self._step()

    def _set(self, rates: Sequence[float]) -> None:
        if rates != self.rates:
            for optimiser, rate in zip(self.optimisers, rates, strict=True):
                set_learning_rate(optimiser, rate)
            self.rates = rates

    def _step(self) -> None:
        index = self.order.index_select(0, self.position).squeeze(0)
        self.position += 1
        batch = self.split.batch(index)
        if self.config.augment == "crop_flip":
            batch = replace(batch, x=crop_and_flip(batch.x))
        for objective, optimiser in zip(self.objectives, self.optimisers, strict=True):
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
                terms = objective.loss(batch)
            terms["loss"].backward()
            if self.config.gradient_clip is not None:
                clip_grad_norm_(objective.parameters, self.config.gradient_clip, foreach=True)
            optimiser.step()
            for name, value in terms.items():
                if name not in self.sums:
                    self.sums[name] = torch.zeros_like(value, dtype=torch.float32, requires_grad=False)
                self.sums[name] += value.detach()


class CapturedStep(EagerStep):
    """A captured step runs the whole step as one CUDA graph.

    CUDA asks for warm-up steps before a capture, and they run on the real parameters. `restore` puts back all that they
    change, so that a captured run starts where an eager one does.
    """

    def __init__(self, *parts: Any, restore: Callable[[], None], **sizes: Any) -> None:
        super().__init__(*parts, **sizes)
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_STEPS):
                    self.position.zero_()
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            for optimiser in self.optimisers:
                optimiser.zero_grad(set_to_none=True)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()
        restore()

    def __call__(self, rates: Sequence[float]) -> None:
        self._set(rates)
        self.graph.replay()
