"""Copies of a model that are trained as one: each is the single run with its seed (sitar.training.copies)."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sitar
from helpers import toys
from helpers.runs import TINY_METHOD, metrics, run, toy
from sitar.config import RunConfig
from sitar.data.types import TrainBatch
from sitar.errors import ConfigError, TrainingError
from sitar.methods import GradientPhase, Objective
from sitar.methods.base import Phase
from sitar.methods.erm import ERM
from sitar.methods.sitar import SITAR
from sitar.registry import METHODS
from sitar.run_folder import RunFolder, UnwrittenFolder
from sitar.testing.interrupt import Stop, writes
from sitar.testing.methods import FILES, MethodCase, one_thread
from sitar.testing.same_run import assert_same_run, predictions, weights
from sitar.training.copies import lockstep, trial
from sitar.training.copies.branches import BRANCHES, BranchedStep
from sitar.training.copies.convolutions import WAYS
from sitar.training.copies.seeds import Trained, train_copies
from sitar.training.copies.stack import StackedStep
from sitar.training.copies.trial import CannotStackError, _compare, build, choose_way, seed_generators
from sitar.training.epoch_progress import ProgressBar
from sitar.training.loop import Loop, Turn
from sitar.training.seeding import NOISE, seed_everything

STEPS = 20
SEEDS = (0, 1, 5)
CPU = torch.device("cpu")
QUICK = [("erm", {}, 2), ("sitar", {}, 2), ("group_dro", {}, 2)]
VARIANTS = [
    ("sitar", {"alpha": 0.0, "lambda": 0.0}, 2),
    ("sitar", {"noise": "direction"}, 2),
    ("sitar", {"noise": "direction", "noise_distribution": "uniform"}, 4),
    ("sitar", {"noise": "swap"}, 4),
    ("sitar", {"vae": "tc"}, 2),
    ("sitar", {"vae": "factor"}, 2),
    ("sitar", {"objective": "analytic"}, 2),
    ("sitar", {"unlabelled": True}, 2),
    ("sitar", {"noise": "swap", "nuisances": ["mean_colour", "color"], "gate": True}, 2),
    ("jacobian", {"projections": 3}, 4),
]
OTHERS = [(name, {}, 2) for name in METHODS.names() if name not in [quick for quick, _, _ in QUICK]]
every_method = pytest.mark.parametrize(
    ("name", "options", "classes"),
    [
        *(pytest.param(*case, id=case[0]) for case in QUICK),
        *(pytest.param(*case, id=case[0], marks=pytest.mark.ci) for case in OTHERS),
        *(pytest.param(*case, id=f"{case[0]}-{case[1]}", marks=pytest.mark.ci) for case in VARIANTS),
    ],
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread(), toys.entered():
        yield


def loops(case: MethodCase, tmp_path: Path, device: torch.device = CPU, **train: Any) -> list[Loop]:
    made: list[Loop] = []
    for seed in SEEDS:
        config = case.config(seed=seed, epochs=STEPS)
        config = config.model_copy(update={"train": config.train.model_copy(update=train)})
        options = {"folder": UnwrittenFolder(tmp_path), "device": device, "shown": ProgressBar(False)}
        beside = made[0] if made else None
        made.append(Loop(case.fresh(seed), case.data, config, **options, beside=beside))
    return made


def test_the_first_turn_has_what_an_epoch_begins_with(tmp_path: Path) -> None:
    """A step that is tried out reads the nuisances as the steps of the run do, and all of it is put back."""
    case = MethodCase("sitar", {"noise": "swap", "nuisances": ["mean_colour"]})
    (loop, *_) = loops(case, tmp_path)
    method = loop.method
    assert isinstance(method, SITAR)
    before = method.projection.clone()
    with loop.first_turn() as turn:
        assert turn is not None
        assert method.table is not None
        assert not torch.equal(method.projection, before)
    assert torch.equal(method.projection, before)


def first_turns(copies: Sequence[Loop]) -> list[Turn]:
    return [next(loop.turns(None)) for loop in copies]


def sums_after_each(step: Any, turns: Sequence[Turn]) -> list[dict[str, Tensor]]:
    """The running sums of all terms after each of the first steps, epoch after epoch."""
    seen, plan = [], turns[0].plan
    for i in range(STEPS):
        epoch, place = divmod(i, plan.steps)
        if place == 0:
            for turn in turns:
                turn.epoch = epoch
            if len(turns) > 1:
                seed_generators(step, turns)
            else:
                seed_everything(turns[0].loop.config.seed, NOISE, plan.number, epoch)
            step.begin_epoch(torch.cat([turn.plan.order(epoch) for turn in turns], 1))
        step(plan.rates(i))
        seen.append({name: total.clone() for name, total in step.sums.items()})
    return seen


def assert_first_steps_agree(
    case: MethodCase, tmp_path: Path, way: str, device: torch.device = CPU, **train: Any
) -> None:
    together = first_turns(loops(case, tmp_path, device, **train))
    step = build(together, way)
    found = sums_after_each(step, together)
    for place, turn in enumerate(first_turns(loops(case, tmp_path, device, **{**train, "step": "auto"}))):
        expected = sums_after_each(turn.loop.build_step(turn), [turn])
        for i, (sums, ours) in enumerate(zip(expected, found, strict=True)):
            assert sums.keys() == ours.keys()
            for name, value in sums.items():
                torch.testing.assert_close(
                    ours[name][place], value, rtol=1e-5, atol=1e-5, msg=lambda m, i=i, name=name: f"{i} {name}: {m}"
                )


@every_method
def test_the_first_steps_of_a_copy_are_those_of_its_seed(
    name: str, options: dict[str, Any], classes: int, tmp_path: Path
) -> None:
    """Every registered method: the terms of the loss agree to 1e-5 with those of the single run."""
    case = MethodCase(name, {**TINY_METHOD.get(name, {}), **options}, classes)
    assert_first_steps_agree(case, tmp_path, "grouped")


@every_method
def test_a_branch_is_the_single_run_bit_for_bit(
    name: str, options: dict[str, Any], classes: int, tmp_path: Path
) -> None:
    case = MethodCase(name, {**TINY_METHOD.get(name, {}), **options}, classes)
    side_by_side = first_turns(loops(case, tmp_path))
    found = sums_after_each(build(side_by_side, BRANCHES), side_by_side)
    for place, turn in enumerate(first_turns(loops(case, tmp_path))):
        expected = sums_after_each(turn.loop.build_step(turn), [turn])
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.keys() == theirs.keys()
            for term, total in theirs.items():
                assert torch.equal(ours[term][place], total), term


@pytest.mark.ci
@pytest.mark.parametrize("way", [way for way in WAYS if way != "grouped"])
def test_another_way_to_convolve_gives_the_same_steps(way: str, tmp_path: Path) -> None:
    assert_first_steps_agree(MethodCase("sitar"), tmp_path, way)


@pytest.mark.ci
def test_gradients_are_clipped_copy_by_copy(tmp_path: Path) -> None:
    assert_first_steps_agree(MethodCase("erm"), tmp_path, "grouped", gradient_clip=0.01)


@pytest.mark.ci
def test_augmented_batches_are_those_of_the_seed(tmp_path: Path) -> None:
    assert_first_steps_agree(MethodCase("sitar", {"unlabelled": True}), tmp_path, "grouped", augment="crop_flip")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("way", [*WAYS, BRANCHES])
@pytest.mark.parametrize("step", ["eager", "captured"])
@pytest.mark.parametrize("name", ["erm", "sitar", "group_dro", "jacobian"])
def test_the_first_steps_on_a_gpu(
    name: str, step: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack as one CUDA graph too, where every copy has a generator of its own."""
    monkeypatch.setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee")
    assert_first_steps_agree(MethodCase(name), tmp_path, way, torch.device("cuda"), step=step)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
def test_grouped_convolutions_are_not_refused_for_tf32(tmp_path: Path) -> None:
    """As a user has it: convolutions may use TF32, and the comparison of single steps and stacked ones does not."""
    before = torch.backends.cudnn.conv.fp32_precision
    build(first_turns(loops(MethodCase("sitar"), tmp_path, torch.device("cuda"))), "grouped")
    assert torch.backends.cudnn.conv.fp32_precision == before


def configs(method: str = "erm", *, seeds: Sequence[int] = SEEDS, **rest: Any) -> list[RunConfig]:
    return [toy(method, seed=seed, **rest) for seed in seeds]


def together(made: Sequence[RunConfig], path: Path, *, resume: bool = False, stack: Any = "always") -> list[Trained]:
    runs = [(config, RunFolder(path / f"seed{config.seed}")) for config in made]
    return train_copies(runs, device="cpu", resume=resume, progress=False, stack=stack)


def is_stacked(folder: RunFolder) -> bool:
    environment = folder.environment()
    assert environment is not None
    return environment.get("together", 1) > 1


def assert_close(folder: RunFolder, single: RunFolder) -> None:
    """The same run up to rounding: weights, predictions, every line of the metrics, the selected epoch."""
    mine, theirs = weights(folder), weights(single)
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name], value, rtol=1e-3, atol=1e-3, msg=lambda m, name=name: f"{name}: {m}")
    for name, array in predictions(single).items():
        np.testing.assert_allclose(predictions(folder)[name], array, rtol=1e-2, atol=1e-2, err_msg=name)
    ours, lines = metrics(folder), metrics(single)
    assert [(line["phase"], line["epoch"]) for line in ours] == [(line["phase"], line["epoch"]) for line in lines]
    assert folder.result()["selected_epoch"] == single.result()["selected_epoch"]


@pytest.mark.parametrize(
    "method", ["sitar", *(pytest.param(name, marks=pytest.mark.ci) for name in ("jtt", "chroma_vae", "afr"))]
)
def test_a_whole_run_of_a_copy_is_that_of_its_seed(method: str, tmp_path: Path) -> None:
    """Methods of several phases too: what is no gradient, each copy does by itself."""
    made = configs(method, seeds=(0, 3))
    for config, trained in zip(made, together(made, tmp_path / "together"), strict=True):
        assert trained.error is None
        assert is_stacked(trained.folder)
        single = run(config, tmp_path / f"single{config.seed}")
        assert_close(trained.folder, single)
        files = {str(file.relative_to(trained.folder.path)) for file in trained.folder.path.rglob("*")}
        assert files >= FILES
        assert "checkpoint/state.pt" not in files
        assert trained.folder.result()["seed"] == config.seed
    model = sitar.load(tmp_path / "together" / "seed3", device="cpu")
    assert model is not None


def test_every_copy_selects_its_own_epoch_and_stops_by_its_own_patience(tmp_path: Path) -> None:
    made = configs(train={"epochs": 12, "patience": 2, "selection": "val_average"}, seeds=range(4))
    lengths, chosen = set(), set()
    for config, trained in zip(made, together(made, tmp_path), strict=True):
        single = run(config, tmp_path / f"single{config.seed}")
        assert_close(trained.folder, single)
        lengths.add(len(metrics(single)))
        chosen.add(single.result()["selected_epoch"])
    assert len(lengths) > 1, "no copy stops before another: this test shows nothing"
    assert len(chosen) > 1


@pytest.fixture
def _branches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have copies run as branches, which is otherwise the way of a GPU."""
    monkeypatch.setattr(trial, "ways", lambda loop: [BRANCHES])


@pytest.mark.usefixtures("_branches_alone")
@pytest.mark.parametrize("method", ["sitar", pytest.param("jtt", marks=pytest.mark.ci)])
def test_a_whole_run_of_a_branch_is_that_of_its_seed_bit_for_bit(method: str, tmp_path: Path) -> None:
    made = configs(method, seeds=(0, 3))
    for config, trained in zip(made, together(made, tmp_path / "together"), strict=True):
        assert trained.error is None
        assert is_stacked(trained.folder)
        assert_same_run(trained.folder, run(config, tmp_path / f"single{config.seed}"))


class Poisoned(ERM):
    """Its second copy has weights that are not finite from the second epoch on."""

    built = 0

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.number = Poisoned.built
        Poisoned.built += 1

    def begin_epoch(self, epoch: int) -> None:
        if self.number == 1 and epoch == 1:
            with torch.no_grad():
                next(self.parameters()).fill_(torch.nan)


def test_a_copy_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = configs()
    singles = [run(config, tmp_path / f"single{config.seed}") for config in made]
    monkeypatch.setattr(Poisoned, "built", 0)
    with METHODS.holding({"erm": Poisoned}):
        trained = together(made, tmp_path)
    assert [one.error is None for one in trained] == [True, False, True]
    monkeypatch.setattr(Poisoned, "built", 1)
    with METHODS.holding({"erm": Poisoned}), pytest.raises(TrainingError) as alone:
        run(made[1], tmp_path / "alone")
    assert str(trained[1].error) == str(alone.value).replace("alone", "seed1")
    assert not trained[1].folder.is_done
    assert metrics(trained[1].folder) == metrics(RunFolder(tmp_path / "alone"))
    for place in (0, 2):
        assert is_stacked(trained[place].folder)
        assert_close(trained[place].folder, singles[place])


@pytest.mark.ci
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_stopped_copies_are_resumed_together_or_alone(share: float, tmp_path: Path) -> None:
    """A copy's folder has the checkpoint of a single run. So one may go on alone, and the others together."""
    made = configs("sitar")
    whole = together(made, tmp_path / "whole")
    total = writes(lambda: together(made, tmp_path / "counted"))
    with pytest.raises(Stop):
        writes(lambda: together(made, tmp_path / "stopped"), stop_at=round(share * total))
    assert not all(RunFolder(tmp_path / "stopped" / f"seed{seed}").is_done for seed in SEEDS)
    shutil.copytree(tmp_path / "stopped", tmp_path / "alone")
    for trained, expected in zip(together(made, tmp_path / "stopped", resume=True), whole, strict=True):
        assert trained.error is None
        assert_close(trained.folder, expected.folder)
    run(made[1], tmp_path / "alone" / f"seed{SEEDS[1]}", resume=True)
    for trained, expected in zip(together(made, tmp_path / "alone", resume=True), whole, strict=True):
        assert_close(trained.folder, expected.folder)


def test_finished_runs_are_left_as_they_are(tmp_path: Path) -> None:
    made = configs()
    run(made[0], tmp_path / f"seed{SEEDS[0]}")
    before = (tmp_path / f"seed{SEEDS[0]}" / "result.json").read_bytes()
    assert all(trained.error is None for trained in together(made, tmp_path, resume=True))
    assert (tmp_path / f"seed{SEEDS[0]}" / "result.json").read_bytes() == before


class DrawsByItself(ERM):
    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": super().loss(batch)["loss"] * (1 + 0.1 * torch.rand(()))}


class HidesATensor(ERM):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.scale = float(torch.rand(()) + 0.5)  # no buffer, and another one in every copy

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": super().loss(batch)["loss"] * self.scale}


class KeepsAMean(ERM):
    """Its running mean is no buffer: what a trial leaves there would be read by the first step."""

    mean: Tensor | None = None

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        loss = super().loss(batch)["loss"]
        self.mean = loss.detach() if self.mean is None else 0.9 * self.mean + 0.1 * loss.detach()
        return {"loss": loss + loss / self.mean}


class Counts(ERM):
    """Counts its steps, and the losses of them, in attributes that are no tensors."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.count, self.losses = 0, []

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        loss = super().loss(batch)["loss"]
        self.count += 1
        self.losses.append(loss.detach())
        return {"loss": loss * (1 + 1 / self.count)}


class WithBatchNorm(ERM):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.norm = nn.BatchNorm1d(2)

    def logits(self, x: Tensor) -> Tensor:
        return self.norm(super().logits(x))


class WithDropout(ERM):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.drop = nn.Dropout(0.5)

    def logits(self, x: Tensor) -> Tensor:
        return super().logits(self.drop(x))


class WithAFunction(ERM):
    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(partial(ERM.loss, self), list(self.parameters())),))


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (DrawsByItself, "random"),
        (HidesATensor, "differs from the single run in 'loss'"),
        (KeepsAMean, "The loss changes mean, which no buffer holds"),
        (Counts, "The loss changes count, losses, which no buffer holds"),
        (WithBatchNorm, "batch normalisation"),
        (WithDropout, "dropout"),
        (WithAFunction, "no function of the method"),
    ],
)
def test_what_cannot_be_stacked_is_trained_one_by_one(
    method: type[ERM], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason in the log, and the very result of single runs."""
    made = configs(seeds=(0, 1), train={"epochs": 2})
    with METHODS.holding({"erm": method}), caplog.at_level(logging.INFO, "sitar"):
        trained = together(made, tmp_path)
        said = [record.getMessage() for record in caplog.records if "one after another" in record.getMessage()]
        assert len(said) == 1
        assert reason in said[0]
        for config, one in zip(made, trained, strict=True):
            assert_same_run(one.folder, run(config, tmp_path / f"single{config.seed}"))


@pytest.mark.usefixtures("_branches_alone")
@pytest.mark.parametrize("method", [HidesATensor, WithBatchNorm, WithAFunction])
def test_branches_hold_what_cannot_be_stacked(method: type[ERM], tmp_path: Path) -> None:
    made = configs(seeds=(0, 1), train={"epochs": 2})
    with METHODS.holding({"erm": method}):
        torch.manual_seed(0)  # a tensor that is hidden is drawn
        for config, one in zip(made, together(made, tmp_path), strict=True):
            assert is_stacked(one.folder)
            assert_same_run(one.folder, run(config, tmp_path / f"single{config.seed}"))


@pytest.mark.usefixtures("_branches_alone")
@pytest.mark.parametrize(("method", "reason"), [(DrawsByItself, "differs from the single run"), (WithDropout, "drop")])
def test_branches_draw_from_generators_of_their_own(
    method: type[ERM], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A loss that draws elsewhere would have other numbers than alone."""
    made = configs(seeds=(0, 1), train={"epochs": 2})
    with METHODS.holding({"erm": method}), caplog.at_level(logging.INFO, "sitar"):
        trained = together(made, tmp_path)
    assert reason in caplog.text
    assert not any(is_stacked(one.folder) for one in trained)


class Racing(BranchedStep):
    """Its second branch loses what the step has written to a weight."""

    def __call__(self, rates: Sequence[float]) -> None:
        weight = next(iter(self.branches[1].objectives[0].parameters))
        before = weight.detach().clone()
        super().__call__(rates)
        with torch.no_grad():
            weight.copy_(before)


def eagerly(step: Any) -> Any:
    """Make a step in the place of a captured one."""

    def make(*parts: Any, restore: Any, **sizes: Any) -> Any:
        assert restore is not None
        return step(*parts, **sizes)

    return make


@pytest.mark.parametrize("way", [*WAYS, BRANCHES])
def test_no_graph_of_the_comparison_is_left_when_a_step_is_captured(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of autograd remember their stream. Those that were made before would break the capture."""
    turns = first_turns(loops(MethodCase("sitar"), tmp_path))
    kept: list[tuple[dict[str, Tensor], list[Tensor | None]]] = []
    look = trial._look_together

    def seen(*parts: Any) -> Any:
        kept.extend(look(*parts))
        return kept

    monkeypatch.setattr(trial, "_look_together", seen)
    build(turns, way)
    assert kept
    assert all(term.grad_fn is None for terms, _ in kept for term in terms.values())
    assert all(gradient is None or gradient.grad_fn is None for _, gradients in kept for gradient in gradients)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("too little memory"), KeyboardInterrupt()])
def test_a_capture_that_fails_leaves_weights_and_optimisers_as_they_were(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps before a capture move them, and the copies may go on one by one."""
    turns = first_turns(loops(MethodCase("erm"), tmp_path))

    def fail(copies: Any, split: Any, *, restore: Any, **sizes: Any) -> None:
        step = BranchedStep(copies, split, **sizes)
        step.begin_epoch(torch.cat([turn.plan.order(0) for turn in turns], 1))
        step(turns[0].plan.rates(0))
        raise error

    for turn in turns:
        turn.loop.captured = True
    before = [{name: value.clone() for name, value in turn.loop.method.state_dict().items()} for turn in turns]
    monkeypatch.setattr(trial, "CapturedBranches", fail)
    with pytest.raises(CannotStackError if isinstance(error, RuntimeError) else type(error)):
        build(turns, BRANCHES)
    for turn, state in zip(turns, before, strict=True):
        for name, value in turn.loop.method.state_dict().items():
            assert torch.equal(value, state[name]), name
        moments = [value for kept in turn.optimisers[0].state.values() for value in kept.values()]
        assert moments
        assert all(not value.any() for value in moments), "the optimiser remembers the steps"


@pytest.mark.parametrize(("step", "is_right"), [(BranchedStep, True), (Racing, False)])
def test_a_captured_step_is_compared_as_it_will_run(
    step: type[BranchedStep], is_right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operations may all be right, and their order in the graph wrong."""
    turns = first_turns(loops(MethodCase("erm"), tmp_path))
    for turn in turns:
        turn.loop.captured = True
    before = [{name: value.clone() for name, value in turn.loop.method.state_dict().items()} for turn in turns]
    monkeypatch.setattr(trial, "CapturedBranches", eagerly(step))
    if is_right:
        assert isinstance(build(turns, BRANCHES), BranchedStep)
    else:
        with pytest.raises(CannotStackError, match="move otherwise than"):
            build(turns, BRANCHES)
    for turn, state in zip(turns, before, strict=True):
        for name, value in turn.loop.method.state_dict().items():
            assert torch.equal(value, state[name]), name


def test_runs_are_noted_as_one_model_once_they_took_steps_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial says that they can. If a later step says that they cannot, the record must not say that they did."""

    def refuse(turns: Sequence[Turn], way: str) -> None:
        raise CannotStackError("Not these.")

    made = configs(seeds=(0, 1), train={"epochs": 2})
    with monkeypatch.context() as patch:
        patch.setattr(lockstep, "build", refuse)
        for config, trained in zip(made, together(made, tmp_path / "apart"), strict=True):
            assert not is_stacked(trained.folder)
            assert_same_run(trained.folder, run(config, tmp_path / f"single{config.seed}"))
    assert all(is_stacked(trained.folder) for trained in together(made, tmp_path / "together"))


def test_a_resumed_run_notes_what_was_so_since(tmp_path: Path) -> None:
    """It was begun alone, and goes on with another one."""
    made = configs(seeds=(0, 1))
    total = writes(lambda: run(made[0], tmp_path / "counted"))
    for config in made:
        with pytest.raises(Stop):
            writes(lambda config=config: run(config, tmp_path / f"seed{config.seed}"), stop_at=total // 2)
    for trained in together(made, tmp_path, resume=True):
        environment = trained.folder.environment() or {}
        assert "together" not in environment
        assert environment["resumed"][-1]["together"] == 2


def test_never_is_one_after_another(tmp_path: Path) -> None:
    made = configs(seeds=(0, 1))
    for config, trained in zip(made, together(made, tmp_path, stack="never"), strict=True):
        assert_same_run(trained.folder, run(config, tmp_path / f"single{config.seed}"))


def test_the_faster_way_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial compares a stacked step with as many single ones, and leaves weights as they were."""
    copies = loops(MethodCase("sitar"), tmp_path)
    before = [{name: value.clone() for name, value in loop.method.state_dict().items()} for loop in copies]
    times = {"grouped": 5.0, "patches": 4.0, BRANCHES: 3.0, "alone": 2.0}

    def seconds(step: Any, turns: Sequence[Turn]) -> float:
        return times[getattr(step, "way", "alone")]

    monkeypatch.setattr("sitar.training.copies.trial._seconds", seconds)
    assert choose_way(copies, "auto") == "patches"
    times["alone"] = 1.0
    with pytest.raises(CannotStackError, match=r"3 single steps take 3000\.0 ms.* 4000\.0 ms"):
        choose_way(copies, "auto")
    for loop in copies:
        loop.captured = True
    monkeypatch.setattr(trial, "CapturedStackedStep", eagerly(StackedStep))
    monkeypatch.setattr(trial, "CapturedBranches", eagerly(BranchedStep))
    monkeypatch.setattr(Loop, "build_step", lambda loop, turn: SimpleNamespace(way="alone"))
    times["alone"] = 2.0
    assert choose_way(copies, "auto") == BRANCHES
    for loop, state in zip(copies, before, strict=True):
        for name, value in loop.method.state_dict().items():
            assert torch.equal(value, state[name]), name


def test_a_step_that_cannot_be_captured_is_taken_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("too little memory")

    copies = loops(MethodCase("erm"), tmp_path)
    for loop in copies:
        loop.captured = True
    monkeypatch.setattr(trial, "CapturedStackedStep", fail)
    monkeypatch.setattr(trial, "CapturedBranches", fail)
    with pytest.raises(CannotStackError, match="cannot be captured: too little memory"):
        choose_way(copies, "always")


def test_a_small_gradient_that_is_missing_is_noticed() -> None:
    """That of a classifier is small beside that of a decoder."""
    loop: Any = SimpleNamespace(
        config=SimpleNamespace(train=SimpleNamespace(precision="float32")), device=SimpleNamespace(type="cuda")
    )
    right = {"loss": torch.tensor(50.0), "gradient 0": torch.full((3,), 46.0), "gradient 1": torch.full((3,), 0.2)}
    _compare([right], [right], loop)
    with pytest.raises(CannotStackError, match="gradient 1"):
        _compare([right], [{**right, "gradient 1": torch.zeros(3)}], loop)


def test_a_trial_can_be_timed(tmp_path: Path) -> None:
    """With the clock itself, whatever it says."""
    reason = ""
    try:
        choose_way(loops(MethodCase("erm"), tmp_path), "auto")
    except CannotStackError as error:
        reason = str(error)
    assert reason == "" or "faster" in reason


def test_a_seed_that_cannot_start_stops_no_other(tmp_path: Path) -> None:
    made = configs(seeds=(0, 1))
    (tmp_path / "seed0").mkdir()
    (tmp_path / "seed0" / "config.yaml").write_text("mine: true")
    runs = [(config, RunFolder(tmp_path / f"seed{config.seed}")) for config in made]
    refused, trained = train_copies(runs, device="cpu", progress=False)
    assert "seed0" in str(refused.error)
    assert trained.error is None
    assert trained.folder.is_done


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    made = configs(seeds=(0, 1))
    with pytest.raises(ConfigError, match="always"):
        together(made, tmp_path, stack="sometimes")
    with pytest.raises(ConfigError, match="folder of its own"):
        train_copies([(config, RunFolder(tmp_path / "one")) for config in made], device="cpu", progress=False)
    with pytest.raises(ValueError, match="more than the seed"):
        together([made[0], toy("erm", seed=1, train={"epochs": 9})], tmp_path)
    assert not list(tmp_path.iterdir())
