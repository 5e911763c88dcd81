"""A stacked step trains copies of a model as one: their weights lie in one tensor each, and vmap runs the loss.

Every copy keeps its own module, optimisers and generator. Its weights and buffers are views of the stacked ones. So
evaluation, checkpoints and optimisers of a copy are those of a single run. Its rows of the batch, its noise and its
gradients are what a single run with its seed has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from sitar.data.types import TrainBatch, TrainSplit
from sitar.functional.draws import for_copies, for_copy
from sitar.methods.base import Method, Objective
from sitar.training.copies.convolutions import computed
from sitar.training.optimise import set_learning_rate
from sitar.training.step import CapturedStep, EagerStep


class Copy(NamedTuple):
    """A copy is a method of its own, with what a phase of it trains."""

    method: Method
    objectives: Sequence[Objective]
    optimisers: Sequence[Optimizer]
    generator: torch.Generator


class Stack:
    """Holds weights and buffers of modules of one kind, stacked. The modules have views of them.

    A buffer that is the same tensor in all modules is left as it is: a table of the training data, for example.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = modules
        buffers = [dict(module.named_buffers()) for module in modules]
        self.shared = {
            name: tensor
            for name, tensor in buffers[0].items()
            if all(tensor is of_copy.get(name) for of_copy in buffers)
        }
        self.parameters = _stacked([dict(module.named_parameters()) for module in modules])
        self.buffers = _stacked(
            [{name: tensor for name, tensor in own.items() if name not in self.shared} for own in buffers]
        )
        for name, parameter in modules[0].named_parameters():
            self.parameters[name].requires_grad_(parameter.requires_grad)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take up buffers that a module has replaced by others since."""
        for place, module in enumerate(self.modules):
            for name, tensor in module.named_buffers():
                if name in self.shared:
                    continue
                own = self.buffers[name][place]
                if tensor.data_ptr() != own.data_ptr():
                    own.copy_(tensor)
                    tensor.data = own


@torch.no_grad()
def _stacked(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    if any(other.keys() != tensors[0].keys() for other in tensors):
        raise ValueError("the copies have weights or buffers of different names")
    stacked = {name: torch.stack([of_copy[name].detach() for of_copy in tensors]) for name in tensors[0]}
    for place, of_copy in enumerate(tensors):
        for name, tensor in of_copy.items():
            tensor.data = stacked[name][place]
    return stacked


class Loss(nn.Module):
    """Computes an objective's loss of the parts of a batch, for vmap."""

    def __init__(self, method: Method, objective: Objective, batch: type[TrainBatch]) -> None:
        super().__init__()
        self.method = method
        self.loss = objective.loss
        self.batch = batch

    def forward(self, *parts: Tensor) -> dict[str, Tensor]:
        return self.loss(self.batch(*parts))


class StackedStep(EagerStep):
    """A stacked step takes one step of every copy. The batch has the rows of one copy after those of another."""

    def __init__(
        self, copies: Sequence[Copy], split: TrainSplit, *, batch_size: int, way: str = "grouped", **sizes: Any
    ) -> None:
        first = copies[0]
        self.copies, self.way = copies, way
        self.stack = Stack([copy.method for copy in copies])
        self.generators = [copy.generator for copy in copies]
        super().__init__(
            first.objectives, first.optimisers, split, batch_size=len(copies) * batch_size, **sizes
        )  # of all copies together
        self.places = torch.arange(len(copies), device=self.device)
        self.names = [_names(first.method, objective) for objective in first.objectives]
        self.weights = [dict(copy.method.named_parameters()) for copy in copies]

    def begin_epoch(self, order: Tensor) -> None:
        self.stack.refresh()
        super().begin_epoch(order)

    def set_rates(self, rates: Sequence[float]) -> None:
        if rates != self.rates:
            for copy in self.copies:
                for optimiser, rate in zip(copy.optimisers, rates, strict=True):
                    set_learning_rate(optimiser, rate)
            self.rates = rates

    def look(self) -> list[tuple[dict[str, Tensor], list[Tensor | None]]]:
        with for_copies(self.generators):
            return super().look()

    def _run_objectives(self) -> None:
        with for_copies(self.generators):
            batch = self._next_batch()
            for number in range(len(self.objectives)):
                for copy in self.copies:
                    copy.optimisers[number].zero_grad(set_to_none=True)
                terms, gradients = self.gradients(number, batch)
                self._move(number, gradients)
                self._add(terms)

    def gradients(self, number: int, batch: TrainBatch) -> tuple[dict[str, Tensor], list[Tensor | None]]:
        """Return terms and gradients of an objective, each with an axis of copies before its own."""
        parts = [getattr(batch, field.name).unflatten(0, (len(self.copies), -1)) for field in fields(batch)]
        with self._autocast(), computed(self.way, self.copies[0].method):
            loss = self._loss(number, type(batch))
            terms = vmap(loss, randomness="error")(self.stack.parameters, self.stack.buffers, self.places, *parts)
        leaves = [self.stack.parameters[name] for name in self.names[number]]
        return terms, list(torch.autograd.grad(terms["loss"].sum(), leaves, allow_unused=True))

    def _loss(self, number: int, batch: type[TrainBatch]) -> Callable[..., dict[str, Tensor]]:
        method = self.copies[0].method
        module = Loss(method, self.objectives[number], batch)

        def loss(
            parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], place: Tensor, *parts: Tensor
        ) -> dict[str, Tensor]:
            tensors = {**parameters, **buffers, **self.stack.shared}
            state = {f"method.{name}": tensor for name, tensor in tensors.items()}
            with for_copy(place):
                return functional_call(module, state, parts)

        return loss

    def _move(self, number: int, gradients: Sequence[Tensor | None]) -> None:
        """Have the optimiser of each copy move its weights."""
        for name, gradient in zip(self.names[number], gradients, strict=True):
            own = [None] * len(self.copies) if gradient is None else gradient.contiguous().unbind()
            for weights, part in zip(self.weights, own, strict=True):
                weights[name].grad = part
        for copy in self.copies:
            if self.config.gradient_clip is not None:
                clip_grad_norm_(copy.objectives[number].parameters, self.config.gradient_clip, foreach=True)
            copy.optimisers[number].step()


class CapturedStackedStep(CapturedStep, StackedStep):
    """The stacked step as one CUDA graph, with the generator of every copy."""


def _names(method: Method, objective: Objective) -> list[str]:
    """Return the names of the weights that an objective moves, in its order."""
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    return [names[id(parameter)] for parameter in objective.parameters if parameter.requires_grad]
