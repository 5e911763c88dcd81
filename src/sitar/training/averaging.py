"""Average the weights over the last epochs of a phase, so that the kept model depends less on where one epoch ended.

The mean is taken between epochs, outside of the step. So a captured step stays as it is, and a phase without an average
is unchanged to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

STATISTICS = ("running_mean", "running_var")  # of batch normalisation: they belong to the weights


class Average:
    """Holds the running mean of the weights after each epoch.

    The mean of the first epochs is a plain one. Once there are `epochs` of them, a new epoch counts as one part in
    `epochs`, and older ones fade. Only one copy of the weights is kept. Parameters and the statistics of batch
    normalisation are averaged. All other buffers, such as the gate of SITAR, are those of the last epoch.
    """

    def __init__(self, epochs: int, saved: Mapping[str, Any] | None = None) -> None:
        """Average over `epochs`, of which 1 means no average, and go on from what a checkpoint has `saved`."""
        self.epochs = epochs
        self.seen: int = 0
        self.mean: dict[str, Tensor] = {}
        if saved is not None:
            self.seen, self.mean = saved["seen"], dict(saved["mean"])

    def check(self, method: nn.Module, epochs: int) -> None:
        """Refuse what a checkpoint has saved if it is no average of this method after so many epochs."""
        seen = epochs if self.epochs > 1 else 0
        if self.seen != seen or _kinds(self.mean) != _kinds(_averaged(method) if seen else {}):
            raise ValueError(f"its average of weights is not that of this model after {epochs} epochs")

    def state(self) -> dict[str, object]:
        """Return what a checkpoint needs to go on."""
        return {"seen": self.seen, "mean": self.mean}

    @torch.no_grad()
    def add(self, method: nn.Module) -> None:
        """Add the weights after one more epoch."""
        if self.epochs == 1:
            return
        self.seen += 1
        for name, tensor in _averaged(method).items():
            if self.seen == 1:
                self.mean[name] = tensor.detach().clone()
            else:
                mean = self.mean[name] = self.mean[name].to(tensor.device)
                mean.lerp_(tensor.detach(), 1 / min(self.seen, self.epochs))

    @contextmanager
    def lent(self, method: nn.Module) -> Iterator[None]:
        """Let a method have the averaged weights for a while, in the memory of its own, and put its own back."""
        own = {name: tensor.detach().clone() for name, tensor in _averaged(method).items() if name in self.mean}
        self.give(method)
        try:
            yield
        finally:
            _copy(own, method)

    def give(self, method: nn.Module) -> None:
        """Let a method have the averaged weights for good."""
        _copy(self.mean, method)


def _averaged(method: nn.Module) -> dict[str, Tensor]:
    """Name the tensors of a method that are averaged."""
    statistics = {name: tensor for name, tensor in method.named_buffers() if name.split(".")[-1] in STATISTICS}
    return {**dict(method.named_parameters()), **statistics}


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], method: nn.Module) -> None:
    tensors = _averaged(method)
    for name, value in values.items():
        tensors[name].copy_(value)
