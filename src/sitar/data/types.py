"""These types flow from data to training and evaluation.

Group labels cannot leak: a training batch has none. A method that declares `needs_groups` receives other types,
`GroupSplit`, `GroupBatch` and `GroupTask`, and nothing else can. A method that learns from unlabelled inputs receives
`UnlabelledSplit` and `UnlabelledBatch`, which have these inputs and nothing that is known of them. What a run is told
to ignore lies beside the training split (`Nuisances`), and no batch has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from typing import Any, Self

import torch
from torch import Tensor

from sitar.data.rows import Stored, rows_at
from sitar.errors import DataError
from sitar.functional.draws import integers
from sitar.functional.precision import in_float64
from sitar.splits import TRAIN

logger = logging.getLogger(__name__)
MOMENT_VALUES = 2**25  # of features, up to which they are in memory as float64 at once
PART_VALUES = 2**20  # of more features: a part that a processor keeps close
OBSERVED = 4096  # training samples that a method may look at before an epoch
MOST_VALUES = 2**27  # of one input that a described task may have: an image of 6,688 x 6,688 pixels in colour
MOST_SAMPLES = 2**40  # that it may count


@dataclass(frozen=True)
class TrainBatch:
    """Holds one step's samples: inputs as floats, labels, and each sample's place in the training split.

    It has no groups.
    """

    x: Tensor
    y: Tensor
    index: Tensor

    def augmented(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the batch with changed inputs."""
        return replace(self, x=change(self.x))


@dataclass(frozen=True)
class TrainSplit:
    """Holds the training samples, images as uint8 (n, channel, height, width). It has no groups."""

    x: Stored
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    @property
    def input_bytes(self) -> int:
        """Return how much memory the inputs take."""
        return self.x.nbytes

    def to(self, device: torch.device) -> Self:
        """Return all of it on `device`."""
        return self.labels_to(device, x=self.x.to(device))

    @property
    def draws_from_host(self) -> bool:
        """Return whether `batch` copies something from the memory of the host, which no CUDA graph can do."""
        return False

    def with_inputs(self, change: Callable[[Stored, str], Stored]) -> Self:
        """Return it with other inputs, such as features of images. `change` is given the inputs and their name."""
        return replace(self, x=change(self.x, TRAIN))

    def labels_to(self, device: torch.device, x: Stored) -> Self:
        """Return it with the inputs `x`, wherever they are, and with everything else on `device`."""
        labels = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "x"}
        return replace(self, x=x, **{name: label.to(device) for name, label in labels.items()})

    def batch(self, index: Tensor, x: Tensor | None = None) -> TrainBatch:
        """Return the samples at the places `index`, on the device of the labels.

        `x` are their inputs as the split stores them, where these were gathered before.
        """
        return TrainBatch(self._inputs(index, x), self.y[index], index)

    def _inputs(self, index: Tensor, x: Tensor | None) -> Tensor:
        return to_float((rows_at(self.x, index) if x is None else x).to(self.y.device))

    def task(self, num_classes: int) -> Task:
        counts = class_counts(self.y, num_classes)
        return Task(tuple(self.x.shape[1:]), num_classes, len(self), counts, self.moments)

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor] | None:
        """Return mean and deviation of each feature; None: the inputs are images."""
        return _moments(self.x) if self.x.ndim == 2 else None


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

    def batch(self, index: Tensor, x: Tensor | None = None) -> GroupBatch:
        return GroupBatch(self._inputs(index, x), self.y[index], index, self.group[index], self.environment[index])

    def task(self, num_classes: int) -> GroupTask:
        return GroupTask(**vars(super().task(num_classes)), group=self.group.cpu(), environment=self.environment.cpu())


@dataclass(frozen=True)
class UnlabelledBatch(TrainBatch):
    """Adds as many inputs that nothing is known of, for a method that learns from unlabelled inputs."""

    unlabelled: Tensor

    def augmented(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(super().augmented(change), unlabelled=change(self.unlabelled))


@dataclass(frozen=True)
class UnlabelledSplit(TrainSplit):
    """Adds inputs from where a model will be used. Neither their labels nor their groups are here."""

    unlabelled: Stored

    @property
    def input_bytes(self) -> int:
        return self.x.nbytes + self.unlabelled.nbytes

    def to(self, device: torch.device) -> Self:
        return replace(super().to(device), unlabelled=self.unlabelled.to(device))

    def labels_to(self, device: torch.device, x: Stored) -> Self:
        return replace(self, x=x, y=self.y.to(device))

    @property
    def draws_from_host(self) -> bool:
        return self.unlabelled.device != self.y.device

    def with_inputs(self, change: Callable[[Stored, str], Stored]) -> Self:
        return replace(super().with_inputs(change), unlabelled=change(self.unlabelled, "unlabelled"))

    def batch(self, index: Tensor, x: Tensor | None = None) -> UnlabelledBatch:
        """Return the samples at the places `index`, and as many unlabelled inputs, drawn with replacement."""
        drawn = rows_at(self.unlabelled, integers(len(self.unlabelled), index))
        return UnlabelledBatch(self._inputs(index, x), self.y[index], index, to_float(drawn.to(self.y.device)))


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

    x: Stored
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

    Groups and environments are of the right number only: one sample stands for each group, and one is of the last
    environment. Mean 0 and deviation 1 stand in for the moments of features. A ValueError says what cannot be.
    """
    shape, counts = tuple(description["shape"]), tuple(description["class_counts"])
    if len(shape) not in (1, 3) or min(shape) < 1 or prod(shape) > MOST_VALUES:
        raise ValueError(f"no input has the shape {list(shape[:4])!s:.80}, or more than {MOST_VALUES:,} values")
    _check_counts("class_counts", counts)
    features = (torch.zeros(shape), torch.ones(shape)) if len(shape) == 1 else None
    task = Task(shape, len(counts), sum(counts), counts, features)
    if "group_counts" not in description:
        return task
    groups, environments = tuple(description["group_counts"]), description.get("environments", 0)
    _check_counts("group_counts", groups)
    if not 1 <= environments <= MOST_SAMPLES:
        raise ValueError(f"environments is no number from 1 to {MOST_SAMPLES:,}")
    group, environment = torch.arange(len(groups), device="cpu"), torch.tensor([environments - 1], device="cpu")
    return GroupTask(**vars(task), group=group, environment=environment)


def _check_counts(name: str, counts: tuple[int, ...]) -> None:
    """Refuse counts of samples that cannot be."""
    if not counts or min(counts) < 0 or sum(counts) > MOST_SAMPLES:
        raise ValueError(f"{name} are no counts of 0 or more, of at most {MOST_SAMPLES:,} samples")


@dataclass(frozen=True)
class Nuisance:
    """Says what a run was told to ignore: a property of the pixels, a column of the data, or a concept with examples.

    `size` is how many numbers it is, or from how many examples it comes. `is_the_attribute`: it is the shortcut by
    which the groups of this data are made. `checksum` is that of its values.
    """

    name: str
    kind: str  # property, column or concept
    size: int
    is_the_attribute: bool
    checksum: str


@dataclass(frozen=True)
class Nuisances:
    """Holds what varies beside the label, for a method whose settings name it.

    `values` are numbers (training sample, number) with mean 0. `examples` are inputs from elsewhere, with and without
    concepts. A row of `contrasts` (concept, example) has 1 / n for the n examples with a concept, -1 / n for those
    without, and else 0. `told` is False for a bank of properties, which no user has named.
    """

    about: tuple[Nuisance, ...]
    values: Tensor
    examples: Stored
    contrasts: Tensor
    told: bool = True

    @property
    def has_the_attribute(self) -> bool:
        """Return whether one of them is the shortcut, so that the method is told all that groups would tell."""
        return any(nuisance.is_the_attribute for nuisance in self.about)

    @property
    def names_told(self) -> list[str]:
        """Return the names that a user has given."""
        return [nuisance.name for nuisance in self.about] if self.told else []

    def to(self, device: torch.device) -> Nuisances:
        """Return all of it on `device`."""
        moved = {name: getattr(self, name).to(device) for name in ("values", "examples", "contrasts")}
        return replace(self, **moved)

    def with_inputs(self, change: Callable[[Stored, str], Stored]) -> Nuisances:
        """Return it with other inputs, such as features of images, where there are examples."""
        return replace(self, examples=change(self.examples, "examples")) if len(self.examples) else self


@dataclass(frozen=True)
class Data:
    """Holds a data set: training samples, evaluation splits by name, class names, a checksum of its source.

    `train_groups` lies apart from `train`, and reaches training only through `with_groups`. `attributes` has the values
    that the numbers in the names of groups stand for. `nuisances` are what a method is told to ignore.
    `feature_columns` are the columns of a table that an input was made of, in their order.
    """

    train: TrainSplit
    evaluation: dict[str, EvalSplit]
    classes: tuple[str, ...]
    checksum: str
    train_groups: TrainGroups | None = None
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nuisances: Nuisances | None = None
    feature_columns: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        return self.train.task(len(self.classes))

    def describe_task(self) -> dict[str, Any]:
        """Return what must be known to build a method again and to give it inputs, as plain values."""
        named = {"feature_columns": list(self.feature_columns)} if self.feature_columns else {}
        return self.task.describe() | named

    def with_groups(self) -> Data:
        """Return the same data for a method that declares `needs_groups`."""
        if self.train_groups is None:
            raise DataError(
                "This method needs the group of every training sample, and this data has none. Use a method that needs "
                "no groups: `sitar presets` marks those that do."
            )
        return replace(self, train=GroupSplit(self.train.x, self.train.y, **vars(self.train_groups)))

    @property
    def num_unlabelled(self) -> int:
        """Return how many unlabelled inputs the method is given. It is 0 for most methods."""
        return len(self.train.unlabelled) if isinstance(self.train, UnlabelledSplit) else 0

    def with_unlabelled(self, x: Stored) -> Data:
        """Return the same data for a method that also learns from the inputs `x`, of which it knows nothing else."""
        return replace(self, train=UnlabelledSplit(self.train.x, self.train.y, x))

    def checked(self) -> Data:
        """Return itself; raise an error where there is nothing to learn from."""
        if len(self.train) == 0:
            raise DataError("The training split is empty: there is nothing to learn from. Check the data settings.")
        counts = dict(zip(self.classes, class_counts(self.train.y, len(self.classes)), strict=True))
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


def observed(n: int, most: int = OBSERVED) -> Tensor:
    """Return the places of the training samples that a method looks at before every epoch: always the same ones."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return order[:most]


def in_batches(
    function: Callable[[Tensor], Tensor],
    x: Stored,
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


def class_counts(y: Tensor, num: int) -> tuple[int, ...]:
    """Count the samples of each class."""
    return tuple(torch.bincount(y.cpu(), minlength=num).tolist())


def _moments(x: Stored) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of each feature, in float64. Those of many rows are merged from those of parts."""
    if len(x) * x.shape[1] <= MOMENT_VALUES:
        values = in_float64(x[:])
        return values.mean(0).float().cpu(), values.std(0, correction=0).float().cpu()
    count, mean, variance = 0, torch.zeros(()), torch.zeros(())
    for part in x.split(max(1, PART_VALUES // x.shape[1])):
        values = in_float64(part)
        share, own = len(values) / (count + len(values)), values.mean(0)
        apart, spread = own - mean, (values - own).square_().mean(0)
        variance = (1 - share) * variance + share * spread + share * (1 - share) * apart**2
        count, mean = count + len(values), mean + share * apart
    return mean.float().cpu(), variance.sqrt().float().cpu()
