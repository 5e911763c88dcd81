"""These types flow from data to training and evaluation.

Group labels cannot leak: a training batch has none. A method that declares `needs_groups` receives other types,
`GroupSplit`, `GroupBatch` and `GroupTask`, and nothing else can.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from sitar.errors import DataError
from sitar.functional.precision import in_float64

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainBatch:
    """Holds one step's samples: inputs as floats, labels, and each sample's place in the training split.

    It has no groups.
    """

    x: Tensor
    y: Tensor
    index: Tensor


@dataclass(frozen=True)
class TrainSplit:
    """Holds the training samples, images as uint8 (n, channel, height, width). It has no groups."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> Self:
        """Return all of it on `device`."""
        return self.labels_to(device, x=self.x.to(device))

    def labels_to(self, device: torch.device, x: Tensor) -> Self:
        """Return it with the inputs `x`, wherever they are, and with everything else on `device`."""
        labels = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "x"}
        return replace(self, x=x, **{name: label.to(device) for name, label in labels.items()})

    def batch(self, index: Tensor) -> TrainBatch:
        """Return the samples at the places `index`, on the device of the labels."""
        return TrainBatch(self._inputs(index), self.y[index], index)

    def _inputs(self, index: Tensor) -> Tensor:
        return to_float(self.x[index.to(self.x.device)].to(self.y.device))

    def task(self, num_classes: int) -> Task:
        task = Task(tuple(self.x.shape[1:]), num_classes, len(self), _counts(self.y, num_classes))
        return replace(task, features=_moments(self.x)) if self.x.ndim == 2 else task


@dataclass(frozen=True)
class GroupBatch(TrainBatch):
    """Adds groups and environments, for a method that declares `needs_groups`."""

    group: Tensor
    environment: Tensor


@dataclass(frozen=True)
class GroupSplit(TrainSplit):
    """Adds the group and the environment of each training sample."""

    group: Tensor
    environment: Tensor

    def batch(self, index: Tensor) -> GroupBatch:
        return GroupBatch(self._inputs(index), self.y[index], index, self.group[index], self.environment[index])

    def task(self, num_classes: int) -> GroupTask:
        return GroupTask(**vars(super().task(num_classes)), group=self.group.cpu(), environment=self.environment.cpu())


@dataclass(frozen=True)
class TrainGroups:
    """Holds the group of every training sample, and the environment it comes from, for methods that are given them.

    Environments are what IRM and V-REx compare: the relation between shortcut and label must differ between them.
    """

    group: Tensor
    environment: Tensor


@dataclass(frozen=True)
class EvalSplit:
    """Holds samples to evaluate on, with the group of each where the data set knows it.

    `group_share` is each group's share of the *training* split, for the adjusted average. `majority` are the (label,
    attribute) cells that follow the shortcut.
    """

    x: Tensor
    y: Tensor
    group: Tensor | None = None
    group_names: tuple[str, ...] = ()
    group_share: tuple[float, ...] | None = None
    majority: frozenset[tuple[int, int]] = frozenset()

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Task:
    """Says all that a method may know before it sees a batch."""

    shape: tuple[int, ...]
    num_classes: int
    num_train: int
    class_counts: tuple[int, ...]
    features: tuple[Tensor, Tensor] | None = None  # mean and deviation of each over the training split; None: images

    def describe(self) -> dict[str, Any]:
        """Return what a method must know to be built again, as plain values. Moments of features are in its weights."""
        return {"shape": list(self.shape), "class_counts": list(self.class_counts)}


@dataclass(frozen=True, kw_only=True)
class GroupTask(Task):
    """Adds groups and environments, to sample and to balance by, for a method that declares `needs_groups`."""

    group: Tensor
    environment: Tensor

    def describe(self) -> dict[str, Any]:
        counts = {"group_counts": self.group.bincount().tolist(), "environments": int(self.environment.max()) + 1}
        return super().describe() | counts


def described_task(description: Mapping[str, Any]) -> Task:
    """Return a task from its description, to build a method whose weights are loaded next.

    The order of samples is not known, so groups and environments are of the right number and size only. Mean 0 and
    deviation 1 stand in for the moments of features.
    """
    shape, counts = tuple(description["shape"]), tuple(description["class_counts"])
    features = (torch.zeros(shape), torch.ones(shape)) if len(shape) == 1 else None
    task = Task(shape, len(counts), sum(counts), counts, features)
    if "group_counts" not in description:
        return task
    sizes = torch.tensor(description["group_counts"])
    group = torch.arange(len(sizes)).repeat_interleave(sizes)
    return GroupTask(**vars(task), group=group, environment=torch.arange(len(group)) % description["environments"])


@dataclass(frozen=True)
class Data:
    """Holds a data set in memory: training samples, evaluation splits by name, class names, a checksum of its source.

    `train_groups` lies apart from `train`, and reaches training only through `with_groups`. `attributes` has the values
    that the numbers in the names of groups stand for.
    """

    train: TrainSplit
    evaluation: dict[str, EvalSplit]
    classes: tuple[str, ...]
    checksum: str
    train_groups: TrainGroups | None = None
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        return self.train.task(len(self.classes))

    def with_groups(self) -> Data:
        """Return the same data for a method that declares `needs_groups`."""
        if self.train_groups is None:
            raise DataError(
                "This method needs the group of every training sample, and this data has none. Use a method that needs "
                "no groups: `sitar presets` marks those that do."
            )
        return replace(self, train=GroupSplit(self.train.x, self.train.y, **vars(self.train_groups)))

    def checked(self) -> Data:
        """Return itself; raise an error where there is nothing to learn from."""
        if len(self.train) == 0:
            raise DataError("The training split is empty: there is nothing to learn from. Check the data settings.")
        counts = dict(zip(self.classes, self.task.class_counts, strict=True))
        present = [name for name, n in counts.items() if n > 0]
        if len(present) < 2:
            raise DataError(
                f"All {len(self.train)} training samples are of one class ({present[0]!r}), and a classifier needs at "
                "least two. Check the labels and the data settings."
            )
        if absent := [name for name, n in counts.items() if n == 0]:
            logger.warning("No training sample is of class %s: a model cannot learn it.", ", ".join(map(repr, absent)))
        return self


def to_float(x: Tensor) -> Tensor:
    """Scale images from uint8 to [0, 1]. Anything else is only made floating point."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def in_batches(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    device: torch.device,
    batch_size: int = 2048,
    watch: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """Apply `function` to inputs as a split stores them, batch by batch on `device`, without gradient.

    `watch` is told after each batch how many samples are done.
    """
    parts, done = [], 0
    for chunk in x.split(batch_size):
        with torch.no_grad():
            parts.append(function(to_float(chunk.to(device))))
        done += len(chunk)
        watch(done)
    return torch.cat(parts)


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    x = in_float64(x)
    return x.mean(0).float().cpu(), x.std(0, correction=0).float().cpu()


def _counts(y: Tensor, num: int) -> tuple[int, ...]:
    return tuple(torch.bincount(y.cpu(), minlength=num).tolist())
