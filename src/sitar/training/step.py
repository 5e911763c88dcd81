"""Run one training step on data on the device, or fed to it: eagerly, or with the whole step captured as a CUDA graph.

A step gathers its batch, runs every objective (loss, gradient, optimiser) and adds the loss terms to running sums. It
reads its place in the epoch from tensors on the device, so that a captured step is a single launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from sitar.config import TrainConfig
from sitar.data.types import TrainBatch, TrainSplit
from sitar.errors import TrainingError
from sitar.functional.augment import crop_and_flip
from sitar.methods.base import Objective
from sitar.training.feed import Feed, needs_feed
from sitar.training.optimise import set_learning_rate
from sitar.training.processes import ALONE, Processes

WARM_UP_STEPS = 3


class Step(Protocol):
    """A step is what runs an epoch: it is begun with an order of samples, and then called for each batch."""

    @property
    def sums(self) -> Mapping[str, Tensor]: ...

    def begin_epoch(self, order: Tensor) -> None: ...

    def rewind(self) -> None: ...

    def __call__(self, rates: Sequence[float]) -> None: ...


class EagerStep:
    """An eager step runs operation by operation. It is the reference that a captured step must agree with."""

    generators: Sequence[torch.Generator] = ()  # of its own, besides torch's

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
        processes: Processes = ALONE,
    ) -> None:
        self.objectives = objectives
        self.optimisers = optimisers
        self.split = split
        self.config = config
        self.device = device
        self.processes = processes
        self.batch_size = batch_size
        self.own = processes.part(batch_size)
        self.order = torch.zeros(steps, self.own.stop - self.own.start, dtype=torch.long, device=self.device)
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.rates: Sequence[float] = ()
        self.sums: dict[str, Tensor] = {}
        self.feed = Feed(split.x, self.device) if needs_feed(split.x, self.device) else None
        self.staged: Tensor | None = None  # inputs of the step that comes, where a feed gathers them

    def begin_epoch(self, order: Tensor) -> None:
        """Begin an epoch. `order` (step, batch) says which samples each step sees."""
        self.order.copy_(order[:, self.own])
        self.position.zero_()
        if self.feed is not None:
            self.feed.begin(order[:, self.own])
        for total in self.sums.values():
            total.zero_()

    def __call__(self, rates: Sequence[float]) -> None:
        """Run the next step of the epoch, each optimiser at its learning rate."""
        self.set_rates(rates)
        self._stage()
        self.run()

    def rewind(self) -> None:
        """Go back to the first step of the epoch, which is then the only one that can be run."""
        self.position.zero_()
        if self.feed is not None:
            self.feed.begin(self.order[:1])

    def gradients(self, number: int, batch: TrainBatch) -> tuple[dict[str, Tensor], list[Tensor | None]]:
        """Return terms and gradients of an objective, and move nothing."""
        objective = self.objectives[number]
        with self._autocast():
            terms = objective.loss(batch)
        learned = [parameter for parameter in objective.parameters if parameter.requires_grad]
        return terms, list(torch.autograd.grad(minimised(objective, terms), learned, allow_unused=True))

    def look(self) -> list[tuple[dict[str, Tensor], list[Tensor | None]]]:
        """Return terms and gradients of every objective on the first batch of the epoch, and move nothing."""
        self.rewind()
        self._stage()
        batch = self._next_batch()
        seen = []
        for number in range(len(self.objectives)):
            terms, gradients = self.gradients(number, batch)
            # without the graph behind them: a capture must not meet nodes that were made on another stream
            seen.append(({name: term.detach() for name, term in terms.items()}, gradients))
        return seen

    def _stage(self) -> None:
        if self.feed is not None:
            self.staged = self.feed.next()

    def set_rates(self, rates: Sequence[float]) -> None:
        """Give each optimiser its learning rate."""
        if rates != self.rates:
            for optimiser, rate in zip(self.optimisers, rates, strict=True):
                set_learning_rate(optimiser, rate)
            self.rates = rates

    def run(self) -> None:
        """Run the step at the present place in the epoch, operation by operation."""
        with self.processes.sharing(self.batch_size):
            self._run_objectives()

    def _next_batch(self) -> TrainBatch:
        index = self.order.index_select(0, self.position).squeeze(0)
        self.position += 1
        batch = self.split.batch(index, self.staged)
        return batch.augmented(crop_and_flip) if self.config.augment == "crop_flip" else batch

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16")

    def _run_objectives(self) -> None:
        batch = self._next_batch()
        for objective, optimiser in zip(self.objectives, self.optimisers, strict=True):
            optimiser.zero_grad(set_to_none=True)
            with self._autocast():
                terms = objective.loss(batch)
            minimised(objective, terms).backward()
            self.processes.average(objective.parameters)
            if self.config.gradient_clip is not None:
                clip_grad_norm_(objective.parameters, self.config.gradient_clip, foreach=True)
            optimiser.step()
            self._add(terms)

    def _add(self, terms: Mapping[str, Tensor]) -> None:
        for name, value in terms.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(value, dtype=torch.float32, requires_grad=False)
            self.sums[name] += value.detach()


def minimised(objective: Objective, terms: dict[str, Tensor]) -> Tensor:
    """Return the term that an objective minimises. A loss that has none is named."""
    if isinstance(terms, dict) and "loss" in terms:
        return terms["loss"]
    found = f"a dict with {', '.join(terms) or 'no key'}" if isinstance(terms, dict) else type(terms).__name__
    raise TrainingError(
        f"{getattr(objective.loss, '__qualname__', 'The loss')} must return a dict with the key 'loss', such as "
        f"{{'loss': value}}. It returned {found}."
    )


class CapturedStep(EagerStep):
    """A captured step runs the whole step as one CUDA graph.

    CUDA asks for warm-up steps before a capture, and they run on the real parameters. `restore` puts back all that they
    change, so that a captured run starts where an eager one does.
    """

    def __init__(self, *parts: Any, restore: Callable[[], None], **sizes: Any) -> None:
        super().__init__(*parts, **sizes)
        if self.feed is not None:  # a graph reads its inputs always from the same memory
            x = self.split.x
            self.staged = torch.zeros((self.order.shape[1], *x.shape[1:]), dtype=x.dtype, device=self.device)
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_STEPS):
                    self.position.zero_()
                    self.run()
            torch.cuda.current_stream().wait_stream(stream)
            for optimiser in self.optimisers:
                optimiser.zero_grad(set_to_none=True)
            self.graph = torch.cuda.CUDAGraph()
            for generator in self.generators:
                self.graph.register_generator_state(generator)
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # NCCL's own thread may go on
                self.run()
        restore()

    def __call__(self, rates: Sequence[float]) -> None:
        self.set_rates(rates)
        self._stage()
        self.graph.replay()

    def _stage(self) -> None:
        if self.feed is not None and self.staged is not None:
            self.staged.copy_(self.feed.next(), non_blocking=True)
