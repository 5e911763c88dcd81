"""A branched step takes one step of every copy, each by itself. On a GPU these are branches of one CUDA graph.

A small model leaves most of a GPU idle. Branches do not depend on each other, so the GPU runs their kernels at the same
time, and one launch starts all of them. Every copy keeps its own weights where they are, and runs the very kernels of a
single run. So this way suits models that vmap cannot stack, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sitar.data.types import TrainSplit
from sitar.functional.draws import for_copies
from sitar.training.copies.stack import Copy
from sitar.training.step import WARM_UP_STEPS, EagerStep

BRANCHES = "branches"


class BranchedStep:
    """A branched step holds a step of each copy. The order of an epoch has the samples of one copy beside another's."""

    way = BRANCHES

    def __init__(self, copies: Sequence[Copy], split: TrainSplit, **sizes: Any) -> None:
        self.generators = [copy.generator for copy in copies]
        self.branches = [EagerStep(copy.objectives, copy.optimisers, split, **sizes) for copy in copies]

    @property
    def sums(self) -> dict[str, Tensor]:
        """Return the sum of each term, with an axis of copies."""
        return {name: torch.stack([branch.sums[name] for branch in self.branches]) for name in self.branches[0].sums}

    def begin_epoch(self, order: Tensor) -> None:
        for branch, own in zip(self.branches, order.chunk(len(self.branches), 1), strict=True):
            branch.begin_epoch(own)

    def rewind(self) -> None:
        for branch in self.branches:
            branch.rewind()

    def __call__(self, rates: Sequence[float]) -> None:
        for branch, generator in zip(self.branches, self.generators, strict=True):
            with for_copies([generator]):
                branch(rates)

    def look(self) -> list[tuple[dict[str, Tensor], list[Tensor | None]]]:
        """Return terms and gradients of every objective, with an axis of copies, and move nothing."""
        seen = []
        for branch, generator in zip(self.branches, self.generators, strict=True):
            with for_copies([generator]):
                seen.append(branch.look())
        return [_side_by_side(of_objective) for of_objective in zip(*seen, strict=True)]


class CapturedBranches(BranchedStep):
    """The step of each copy is a branch of one CUDA graph. `restore` puts back what the steps before it change."""

    def __init__(self, *parts: Any, restore: Callable[[], None], **sizes: Any) -> None:
        super().__init__(*parts, **sizes)
        if any(branch.feed is not None for branch in self.branches):
            raise RuntimeError("the training data lies in host memory")
        with torch.cuda.device(self.branches[0].device):
            streams = [torch.cuda.Stream() for _ in self.branches]
            torch.cuda.synchronize()  # the branches do not wait for what was asked for before, such as a snapshot
            for number in range(len(streams)):  # one by one: what the first one leaves in a cache serves the others
                with torch.cuda.stream(streams[number]):
                    for _ in range(WARM_UP_STEPS):
                        self.branches[number].position.zero_()
                        self._branch(number)
                torch.cuda.synchronize()
                for optimiser in self.branches[number].optimisers:
                    optimiser.zero_grad(set_to_none=True)
            self.graph = torch.cuda.CUDAGraph()
            for generator in self.generators:
                self.graph.register_generator_state(generator)
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                trunk = torch.cuda.current_stream()
                for number, stream in enumerate(streams):
                    stream.wait_stream(trunk)
                    with torch.cuda.stream(stream):
                        self._branch(number)
                for stream in streams:
                    trunk.wait_stream(stream)
        restore()

    def __call__(self, rates: Sequence[float]) -> None:
        for branch in self.branches:
            branch.set_rates(rates)
        self.graph.replay()

    def _branch(self, number: int) -> None:
        with for_copies([self.generators[number]]):
            self.branches[number].run()


def _side_by_side(
    seen: Sequence[tuple[dict[str, Tensor], list[Tensor | None]]],
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    terms = {name: torch.stack([of_copy[name] for of_copy, _ in seen]) for name in seen[0][0]}
    gradients = [
        None if any(part is None for part in parts) else torch.stack(parts)  # type: ignore[arg-type]
        for parts in zip(*(of_copy for _, of_copy in seen), strict=True)
    ]
    return terms, gradients
