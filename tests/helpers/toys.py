"""Small datasets and methods that make one property of training visible each.

Also imported by the processes that the tests kill, so nothing here registers itself: `entered` and `enter_here` do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from unittest.mock import patch

import torch
from torch import Tensor, nn

import sitar
from sitar.config import ModelConfig, NamedConfig
from sitar.data.base import DataConfig, Dataset
from sitar.data.types import Data, EvalSplit, Task, TrainBatch, TrainGroups, TrainSplit
from sitar.methods import FitPhase, GradientPhase, Method, Objective
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS, METHODS

CHECKSUM = "toy"  # of every toy dataset; a test that changes the data changes this


class BlobsConfig(DataConfig):
    name: Literal["toy_blobs"] = "toy_blobs"
    classes: int = 2
    n: int = 50
    groups: bool = True
    features: bool = False
    """Twelve numbers of unlike scales, one of them constant, in the place of each image."""
    splits: tuple[str, ...] = ("val", "ood_test")


class Blobs(Dataset):
    """Images (3, 8, 8) whose brightness says the class and whose first channel agrees with it mostly.

    Every evaluation split has 40 samples, in groups of (class, whether the channel agrees).
    """

    Config = BlobsConfig

    @classmethod
    def load(cls, config: BlobsConfig, watch: Watch = unwatched) -> Data:
        random = torch.Generator().manual_seed(config.classes)

        def samples(n: int) -> tuple[Tensor, Tensor, Tensor]:
            y = torch.arange(n) % config.classes
            agrees = torch.rand(n, generator=random) < 0.8
            x = torch.randint(0, 80, (n, 3, 8, 8), generator=random) + (40 * y)[:, None, None, None]
            x[:, 0] += torch.where(agrees, 60 * y, 60 * (config.classes - 1 - y))[:, None, None]
            x = x.clamp(max=255).to(torch.uint8)
            return (as_features(x) if config.features else x), y, agrees

        x, y, agrees = samples(config.n)
        groups = TrainGroups(2 * y + agrees, (~agrees).long()) if config.groups else None
        evaluation = {}
        names = tuple(f"label={label},agrees={a}" for label in range(config.classes) for a in (0, 1))
        for name in config.splits:
            x_eval, y_eval, agrees = samples(40)
            evaluation[name] = EvalSplit(x_eval, y_eval, 2 * y_eval + agrees, names, (1 / len(names),) * len(names))
        classes = tuple(f"class {i}" for i in range(config.classes))
        return Data(TrainSplit(x, y), evaluation, classes, CHECKSUM, groups)


def as_features(x: Tensor) -> Tensor:
    means = x.float().reshape(len(x), 3, 4, 16).mean(3).flatten(1)
    means[:, -1] = 7.0
    return means * torch.logspace(-3, 3, means.shape[1])


class TallyConfig(NamedConfig):
    name: Literal["toy_tally"] = "toy_tally"
    slope: float = 1.0
    second_slope: float | None = None
    second_rate: float = 0.5
    nan_from: int | None = None
    """The first epoch, counted from 1, whose loss is not finite."""


class Tally(Method):
    """The loss is `slope * w`, so w falls by learning rate x slope a step with plain SGD; counts visits of each sample.

    A second objective moves another parameter with an optimiser of its own.
    """

    Config = TallyConfig

    def __init__(self, config: TallyConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        self.config = config
        self.num_classes = task.num_classes
        self.w = nn.Parameter(torch.zeros(()))
        self.second = nn.Parameter(torch.zeros(()))
        self.register_buffer("visits", torch.zeros(task.num_train))
        self.register_buffer("poison", torch.zeros(()))

    def phases(self) -> Iterator[GradientPhase]:
        objectives = [Objective(self.loss, [self.w])]
        if self.config.second_slope is not None:
            settings = {"learning_rate": self.config.second_rate, "optimiser": "sgd", "momentum": 0.0}
            objectives.append(Objective(self.second_loss, [self.second], settings))
        yield GradientPhase("tally", tuple(objectives))

    def begin_epoch(self, epoch: int) -> None:
        if self.config.nan_from is not None and epoch + 1 >= self.config.nan_from:
            self.poison.fill_(float("inf"))

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        self.visits.index_add_(0, batch.index, torch.ones_like(batch.index, dtype=torch.float32))
        loss = self.config.slope * self.w + 0 * self.poison
        return {"loss": loss, "w": self.w + 0, "batch": torch.ones_like(batch.index).sum()}

    def second_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        assert self.config.second_slope is not None
        return {"loss": self.config.second_slope * self.second, "second": self.second + 0}

    def logits(self, x: Tensor) -> Tensor:
        return self.w * torch.ones(len(x), self.num_classes, device=x.device)


class GroupsConfig(NamedConfig):
    name: Literal["toy_groups"] = "toy_groups"


class Groups(Dataset):
    """A val split that says in its pixels what each sample is: (class, group, number within its group).

    Class 0 has the groups 0 (30 samples) and 1 (10), class 1 the groups 2 (10) and 3 (10).
    """

    Config = GroupsConfig
    SIZES = (30, 10, 10, 10)

    @classmethod
    def load(cls, config: GroupsConfig, watch: Watch = unwatched) -> Data:
        group = torch.repeat_interleave(torch.arange(4), torch.tensor(Groups.SIZES))
        number = torch.cat([torch.arange(n) for n in Groups.SIZES])
        y = group // 2
        x = torch.zeros(len(y), 1, 4, 4, dtype=torch.uint8)
        x[:, 0, 0, 0], x[:, 0, 0, 1], x[:, 0, 0, 2] = y, group, number
        val = EvalSplit(x, y, group, tuple(f"group={i}" for i in range(4)), (0.25,) * 4)
        return Data(TrainSplit(x, y), {"val": val}, ("a", "b"), CHECKSUM)


class ScriptConfig(NamedConfig):
    name: Literal["toy_script"] = "toy_script"
    hits: tuple[tuple[int, int, int, int], ...]
    """For each epoch, how many samples of each group of `Groups` are classified rightly."""


class Script(Method):
    """Has the accuracies on `Groups` that its settings write down for each epoch, and remembers the epoch."""

    Config = ScriptConfig

    def __init__(self, config: ScriptConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))
        self.register_buffer("hits", torch.tensor(config.hits))
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))

    def phases(self) -> Iterator[GradientPhase]:
        yield GradientPhase("script", (Objective(self.loss, [self.w]),))

    def begin_epoch(self, epoch: int) -> None:
        self.epoch.fill_(epoch)

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": self.w.square() + self.w}

    def logits(self, x: Tensor) -> Tensor:
        y, group, number = (255 * x[:, 0, 0, :3]).round().long().unbind(1)
        right = number < self.hits[self.epoch][group]
        return nn.functional.one_hot(torch.where(right, y, 1 - y), 2).float()


class RelayConfig(NamedConfig):
    name: Literal["toy_relay"] = "toy_relay"
    first_epochs: int = 2
    dropout: float = 0.0


class Relay(Method):
    """Every kind of phase in one: train, mark hard samples, start afresh on those, train a copy, fit a last layer.

    The marks are a buffer that the first phase's loss fills; what lies between phases draws random weights, so that a
    resumed run is exact only if each phase starts from the weights and the random state it would have had.
    """

    Config = RelayConfig

    def __init__(self, config: RelayConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        self.config = config
        self.num_classes = task.num_classes
        features = task.shape[0] * task.shape[1] * task.shape[2]
        self.first = nn.Sequential(nn.Flatten(), nn.Dropout(config.dropout), nn.Linear(features, task.num_classes))
        self.second = nn.Sequential(nn.Flatten(), nn.Dropout(config.dropout), nn.Linear(features, task.num_classes))
        self.register_buffer("loss_of", torch.zeros(task.num_train))
        self.register_buffer("bias", torch.zeros(task.num_classes))
        self.register_buffer("fitted", torch.zeros(()))

    def phases(self) -> Iterator[GradientPhase | FitPhase]:
        parameters = list(self.first.parameters())
        yield GradientPhase("first", (Objective(self.first_loss, parameters),), self.config.first_epochs, select=False)
        hard = self.loss_of > self.loss_of.median()
        repeats = torch.where(hard, 3, 1).cpu()
        indices = torch.repeat_interleave(torch.arange(len(repeats)), repeats)
        self._restart(self.second)
        yield GradientPhase("second", (Objective(self.second_loss, list(self.second.parameters())),), indices=indices)
        self._perturb(self.second)
        yield FitPhase("fit", self.fit)
        self.bias.mul_(0.5)

    def _restart(self, network: nn.Sequential) -> None:
        for layer in network:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    @torch.no_grad()
    def _perturb(self, network: nn.Sequential) -> None:
        for parameter in network.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))

    def first_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        loss = nn.functional.cross_entropy(self.first(batch.x), batch.y, reduction="none")
        self.loss_of.index_copy_(0, batch.index, loss.detach())
        return {"loss": (loss * torch.rand_like(loss)).mean()}

    def second_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        noisy = batch.x + 0.05 * torch.randn_like(batch.x)
        return {"loss": nn.functional.cross_entropy(self.second(noisy), batch.y)}

    @torch.no_grad()
    def fit(self, split: TrainSplit) -> None:
        counts = nn.functional.one_hot(split.y, self.num_classes).float().mean(0)
        self.bias.add_(counts.log() + 0.1 * torch.randn_like(counts))
        self.fitted.add_(1)

    def logits(self, x: Tensor) -> Tensor:
        return self.second(x) + self.bias


class AnnealedConfig(SITARConfig):
    name: Literal["toy_annealed"] = "toy_annealed"
    anneal_epochs: int = 6
    """Epochs in which beta rises linearly from 0 to its value."""


class Annealed(SITAR):
    """SITAR whose loss changes from epoch to epoch: beta is a buffer that each epoch fills."""

    Config = AnnealedConfig
    config: AnnealedConfig

    def begin_epoch(self, epoch: int) -> None:
        self.beta.fill_(self.config.beta * min(1.0, epoch / self.config.anneal_epochs))


METHOD_TOYS: dict[str, type] = {
    "toy_tally": Tally,
    "toy_script": Script,
    "toy_relay": Relay,
    "toy_annealed": Annealed,
}
DATA_TOYS: dict[str, type] = {"toy_blobs": Blobs, "toy_groups": Groups}


@contextmanager
def entered() -> Iterator[None]:
    """Put the toys into the registries, and take them out at the end: other tests run over what is registered."""
    METHODS.names(), DATASETS.names()
    with patch.dict(METHODS._classes, METHOD_TOYS), patch.dict(DATASETS._classes, DATA_TOYS):
        yield


def train_here(settings: str, out: str) -> None:
    """Train in a process of its own, which a test may kill."""
    with entered():
        sitar.train(settings, out=out, device="cpu", progress=False)
