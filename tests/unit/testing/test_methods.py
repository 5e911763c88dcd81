"""Every check of a method can fail, and says then which one it is and what is expected."""

from __future__ import annotations

import ast
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import sitar.testing
from sitar.config import NamedConfig
from sitar.data.types import TrainBatch, TrainSplit
from sitar.methods import FitPhase, GradientPhase, Objective
from sitar.methods.base import NetworkMethod
from sitar.registry import METHODS
from sitar.testing import Check, ContractError, check_method, method_checks

NAME = "toy_broken"


class Settings(NamedConfig):
    name: Literal["toy_broken"] = NAME


class Plain(NetworkMethod):
    """Keeps every promise: each of the others breaks one."""

    Config = Settings

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(self.logits(batch.x), batch.y)}


class OtherName(Plain):
    class Config(NamedConfig):
        name: Literal["other"] = "other"


class NoMethod(nn.Module):
    Config = Settings


class NothingMoves(Plain):
    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": 0 * super().loss(batch)["loss"]}


class OwnRandomness(Plain):
    calls = itertools.count()

    def phases(self) -> Iterator[GradientPhase]:
        with torch.no_grad():
            next(self.parameters()).add_(1e-3 * next(self.calls))
        yield from super().phases()


class ForgetsAtAStop(Plain):
    """How far it is stands in an attribute, which no checkpoint has."""

    steps = 0

    def begin_epoch(self, epoch: int) -> None:
        self.steps += 1

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": super().loss(batch)["loss"] * self.steps}


class KeepsTheEpoch(Plain):
    """A run that is continued knows its epoch again. A CUDA graph would stay in the first one."""

    epoch = 0

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": super().loss(batch)["loss"] / (1 + self.epoch)}


class HidesAnOffset(Plain):
    offset: Tensor | float = 0.0

    def phases(self) -> Iterator[GradientPhase | FitPhase]:
        yield from super().phases()
        yield FitPhase("fit", self.fit)

    def fit(self, split: TrainSplit) -> None:
        self.offset = torch.tensor([0.5, -0.5])

    def logits(self, x: Tensor) -> Tensor:
        return super().logits(x) + self.offset


class NeedsEveryGroup(Plain):
    """Takes the mean over the samples that contradict the shortcut, which need not exist."""

    needs_groups = True

    def __init__(self, config: Any, model: Any, task: Any) -> None:
        super().__init__(config, model, task)
        self.register_buffer("weight", task.num_train / task.environment.sum() * task.environment.float().mean())

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": super().loss(batch)["loss"] * self.weight}


class MovesAnothersWeights(Plain):
    def phases(self) -> Iterator[GradientPhase]:
        self.others = [nn.Parameter(torch.zeros(()))]
        yield GradientPhase("train", (Objective(self.loss, [*self.parameters(), *self.others]),))


class WritesIntoItsBatch(Plain):
    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        batch.x.mul_(0.5)
        return super().loss(batch)


class DropsAtTest(Plain):
    def logits(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().logits(x), 0.5, training=True)


class Branches(Plain):
    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        loss = super().loss(batch)["loss"]
        return {"loss": loss if loss > 0 else -loss}


class SameForAllCopies(Plain):
    def __init__(self, config: Any, model: Any, task: Any) -> None:
        super().__init__(config, model, task)
        self.shift = nn.Parameter(torch.zeros(()))

    def phases(self) -> Iterator[GradientPhase]:
        yield from super().phases()
        yield GradientPhase(
            "shift", (Objective(lambda batch: {"loss": (self.shift - batch.x.mean()) ** 2}, [self.shift]),), 1
        )


class Waits(Plain):
    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": super().loss(batch)["loss"] * batch.x.mean().item()}


BROKEN: list[tuple[type, str, str]] = [
    (NoMethod, "settings", "must derive from sitar.methods.base.Method"),
    (OtherName, "settings", "method.name = 'toy_broken' is not allowed"),
    (NothingMoves, "training_leaves_a_complete_folder", "no weight has moved"),
    (OwnRandomness, "the_seed_decides", "tensors that differ: ['network"),
    (ForgetsAtAStop, "a_continued_run_equals_an_uninterrupted_one", "tensors that differ: ['network"),
    (HidesAnOffset, "the_state_dict_is_complete", "other logits on val after loading the weights"),
    (NeedsEveryGroup, "majority_only_data", "TrainingError: "),
    (
        MovesAnothersWeights,
        "objectives_move_parameters_of_the_method",
        "of the phase 'train' moves what is no parameter",
    ),
    (WritesIntoItsBatch, "the_loss_leaves_its_batch_alone", "batch.x changed"),
    (KeepsTheEpoch, "an_epoch_begins_in_buffers", "the loss reads epoch, which another epoch changes"),
    (DropsAtTest, "logits-2_classes", "a second call gives other logits"),
    (Branches, "the_loss_compiles-2_classes", "Unsupported: "),
    (SameForAllCopies, "the_loss_runs_under_vmap-2_classes", "copies with other weights have the same loss"),
    (Waits, "the_loss_never_waits_for_the_device-2_classes", "DataDependentOutputException: "),
]


@pytest.mark.parametrize(("cls", "name", "found"), [pytest.param(*case, id=case[0].__name__) for case in BROKEN])
def test_a_broken_method_fails_its_check(cls: type, name: str, found: str) -> None:
    with METHODS.holding({NAME: cls}):
        check = next(check for check in method_checks(NAME) if check.__name__ == name)
        with pytest.raises(ContractError) as caught:
            check()
    message = str(caught.value)
    assert message.startswith(f"The method 'toy_broken' fails the check {name!r}.\nExpected: ")
    assert found in message.partition("\nFound: ")[2]
    assert caught.value.__cause__ is not None


def test_every_check_can_fail() -> None:
    names = {check.__name__ for check in method_checks(NAME) if "4_classes" not in check.__name__}
    assert names == {name for _, name, _ in BROKEN}


def test_check_method_runs_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(Check, "__call__", lambda check: called.append(check.__name__))
    check_method(NAME)
    assert called == [check.__name__ for check in method_checks(NAME)]
    assert len(set(called)) == len(called)


def test_a_method_that_keeps_every_promise_passes_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with METHODS.holding({NAME: Plain}), caplog.at_level(logging.INFO, "sitar"):
        for check in method_checks(NAME):
            if "4_classes" not in check.__name__ and "compiles" not in check.__name__:
                check()
    assert caplog.messages == []


def test_what_an_epoch_notes_for_its_log_alone_may_be_an_attribute() -> None:
    class Notes(Plain):
        def begin_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    with METHODS.holding({NAME: Notes}):
        next(check for check in method_checks(NAME) if check.__name__ == "an_epoch_begins_in_buffers")()


def test_check_method_raises_at_the_first_that_fails() -> None:
    with METHODS.holding({NAME: OtherName}), pytest.raises(ContractError, match="fails the check 'settings'"):
        check_method(NAME)


def test_every_check_says_what_is_expected() -> None:
    for check in method_checks(NAME):
        sentence = " ".join((check.function.__doc__ or "").split())
        assert sentence.endswith("."), check.__name__
        assert len(sentence) > 30, check.__name__


def test_the_checks_need_no_pytest() -> None:
    """A package may run them with whatever it likes."""
    files = list(Path(sitar.testing.__file__).parent.glob("*.py"))
    assert len(files) > 4
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "sitar.registry" in imported
    assert not [name for name in imported if name and name.partition(".")[0] in ("pytest", "_pytest")]
