"""A method is a module with settings, a generator of phases, and logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from sitar.config import ModelConfig, NamedConfig
from sitar.data.types import Nuisances, Task
from sitar.functional.precision import in_float64
from sitar.models import VAE, Network
from sitar.models.build import build_network

Loss = Callable[[Any], dict[str, Tensor]]  # of a TrainBatch, or of what else a method is given (data/types.py)
OPTIMISER_SETTINGS = {"optimiser", "learning_rate", "weight_decay", "momentum", "schedule", "warmup_epochs"}


@dataclass(frozen=True)
class Objective:
    """An objective is a loss and the parameters that it moves, with its own optimiser.

    The loss returns its terms by name. "loss" is minimised, and all terms are logged as means over an epoch. It has no
    data-dependent Python branches and no `.item()`, so that it can be compiled, captured and batched over models.
    """

    loss: Loss
    parameters: Sequence[nn.Parameter]
    settings: Mapping[str, Any] = field(default_factory=dict)  # of TrainConfig, where this optimiser differs

    def __post_init__(self) -> None:
        if unknown := set(self.settings) - OPTIMISER_SETTINGS:
            raise ValueError(f"an objective cannot set {sorted(unknown)}, only {sorted(OPTIMISER_SETTINGS)}")


@dataclass(frozen=True)
class GradientPhase:
    """A gradient phase consists of epochs of steps. Each step runs every objective once, in order."""

    name: str
    objectives: tuple[Objective, ...]
    epochs: int | None = None  # None: train.epochs
    indices: Tensor | None = None  # which training samples make an epoch, repeats allowed; None: each once
    sampling: Tensor | None = None  # a weight for each of them: drawn with replacement; None: a permutation
    select: bool = True  # whether the selection criterion chooses among this phase's epochs
    logits: Callable[[Tensor], Tensor] | None = None  # what is evaluated while this phase runs; None: the method's
    facts: Mapping[str, Any] = field(default_factory=dict)  # plain values, written beside the terms of every epoch


@dataclass(frozen=True)
class FitPhase:
    """A fit phase is a step without gradient over the whole training split, such as k-NN or a last-layer fit."""

    name: str
    fit: Callable[[Any], None]  # of a TrainSplit, or of a GroupSplit where the method needs groups


Phase = GradientPhase | FitPhase


@dataclass(frozen=True)
class Bottleneck:
    """A bottleneck is the latent that a method predicts from. Its logits are `classify` of the `latent` of an input."""

    network: VAE | Network
    classify: Callable[[Tensor], Tensor]

    def latent(self, x: Tensor) -> Tensor:
        """Return the posterior mean, or what stands in its place, of inputs as a batch carries them."""
        return self.network.mean(self.network.encoder(self.network.backbone(x)))


class Method(nn.Module):
    """This is the base of all methods.

    Everything that training changes is a parameter or a buffer, so that the state dict is complete.
    """

    Config: ClassVar[type[NamedConfig]]
    needs_groups: bool = False  # its batches are GroupBatches; every table marks it
    needs_unlabelled: bool = False  # its batches are UnlabelledBatches; every table marks it
    vae_learns: Literal["with labels", "without labels"] | None = None  # where it has a `vae`, and how
    evaluation_batch: int = 2048  # inputs that `logits` is given at a time
    one_process: str | None = None  # why several processes cannot train it, in sentences; None: they can
    no_slope: str | None = None  # why a derivative of the logits says nothing, in a sentence; None: it does
    no_export: str | None = None  # why the model cannot be one file, and what to do, in sentences; None: it can

    @classmethod
    def takes_unlabelled(cls, config: Any) -> bool:
        """Return whether it learns from unlabelled inputs with these settings. Some methods do so only if asked."""
        return cls.needs_unlabelled

    def phases(self) -> Iterator[Phase]:
        """Yield what to run, in order. Code between two phases may read buffers that the phase before has filled."""
        raise NotImplementedError

    def observe(self, train: Any, nuisances: Nuisances | None) -> None:
        """Look at the training split before an epoch or a fit, and at what the settings tell to ignore.

        The split is a TrainSplit, or a kind of it that the method was given. This may only fill buffers, and draws no
        random numbers.
        """

    def facts(self) -> dict[str, Any]:
        """Return what training has found out, as plain values for result.json."""
        return {}

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch of a gradient phase, counted from 0 in that phase. This may only fill buffers."""

    def logits(self, x: Tensor) -> Tensor:
        """Return class scores (batch, class) for inputs as a batch carries them. They are deterministic."""
        raise NotImplementedError

    def bottleneck(self) -> Bottleneck | None:
        """Return the latent that `logits` goes through, or None if there is none."""
        return None

    def why_no_vae(self) -> str:
        """Say why `bottleneck` has no VAE, where it has none."""
        return "This method has no VAE."

    def samples_shown(self) -> int | None:
        """Return how many training samples the method is shown. None means all of them."""
        return None


class WeightedConfig(NamedConfig):
    """These settings belong to a method that minimises a cross-entropy."""

    class_weight: Literal["balanced"] | None = Field(
        default=None, description="balanced: every class counts the same, however many samples it has"
    )


class WeightedMethod(Method):
    """This method may weigh classes in its cross-entropy.

    Otherwise `class_weight` is None, and not in the state dict.
    """

    class_weight: Tensor | None

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__()
        self.config = config
        balanced = isinstance(config, WeightedConfig) and config.class_weight == "balanced"  # not all have the setting
        self.register_buffer("class_weight", balanced_weights(task) if balanced else None)

    def sample_weight(self, y: Tensor) -> Tensor | None:
        """Return the weight of each sample's class, or None if all count the same."""
        return None if self.class_weight is None else self.class_weight[y]


class NetworkMethod(WeightedMethod):
    """This method trains a plain network in one phase. A subclass says by which loss."""

    def __init__(self, config: Any, model: ModelConfig, task: Task) -> None:
        super().__init__(config, task)
        self.network = build_network(model, task)

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(self.loss, list(self.parameters())),))

    def loss(self, batch: Any) -> dict[str, Tensor]:
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        return self.network(x)

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.network, self.network.classifier)


@contextmanager
def settled(module: nn.Module) -> Iterator[None]:
    """Let batch normalisation use its running statistics and leave them as they are.

    A penalty then differentiates a function of one sample at a time.
    """
    norms = [m for m in module.modules() if isinstance(m, BatchNorm) and m.training]
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for norm in norms:
            norm.training = True


def balanced_weights(task: Task) -> Tensor:
    """Return n / (C * n_c) for each class, as scikit-learn's "balanced" does. A class without samples has 0."""
    counts = torch.tensor(task.class_counts, dtype=torch.float32)
    return torch.where(counts > 0, task.num_train / (task.num_classes * counts.clamp_min(1)), 0.0)


def equal_sampling(group: Tensor) -> Tensor:
    """Return weights with which a draw takes each group that has samples with the same probability."""
    return 1.0 / in_float64(torch.bincount(group)[group])
