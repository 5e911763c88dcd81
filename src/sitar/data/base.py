"""What flows from data to training and evaluation. Groups exist on evaluation splits only: they cannot leak."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sitar.errors import DataError


@dataclass(frozen=True)
class TrainBatch:
    """One step's samples: inputs as floats, labels, and each sample's place in the training split. No group."""

    x: Tensor
    y: Tensor
    index: Tensor


@dataclass(frozen=True)
class TrainSplit:
    """Training samples; images as uint8 (n, channel, height, width). No group."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> TrainSplit:
        return TrainSplit(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class EvalSplit:
    """Samples to evaluate on, with the group of each where the dataset knows it.

    `group_share` is each group's share of the *training* split, for the adjusted average.
    """

    x: Tensor
    y: Tensor
    group: Tensor | None = None
    group_names: tuple[str, ...] = ()
    group_share: tuple[float, ...] | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Task:
    """All that a method may know before it sees a batch."""

    shape: tuple[int, ...]
    num_classes: int
    num_train: int
    class_counts: tuple[int, ...]


@dataclass(frozen=True)
class Data:
    """A dataset in memory: training samples, evaluation splits by name, class names, a checksum of its source."""

    train: TrainSplit
    evaluation: dict[str, EvalSplit]
    classes: tuple[str, ...]
    checksum: str

    @property
    def task(self) -> Task:
        counts = torch.bincount(self.train.y, minlength=len(self.classes))
        return Task(tuple(self.train.x.shape[1:]), len(self.classes), len(self.train), tuple(counts.tolist()))

    def checked(self) -> Data:
        """Itself, or an error when there is nothing to learn from."""
        if len(self.train) == 0:
            raise DataError("The training split is empty: there is nothing to learn from. Check the data settings.")
        present = [name for name, n in zip(self.classes, self.task.class_counts, strict=True) if n > 0]
        if len(present) < 2:
            raise DataError(
                f"All {len(self.train)} training samples are of one class ({present[0]!r}), and a classifier needs at "
                "least two. Check the labels and the data settings."
            )
        return self


def to_float(x: Tensor) -> Tensor:
    """Images from uint8 to [0, 1]; anything else is only made floating point."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()
