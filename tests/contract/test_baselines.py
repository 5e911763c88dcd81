"""Whole runs of the baselines: what JTT marks, who sees groups, and data that a baseline must refuse or survive."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import sitar.training.loop
import sitar.training.run
from helpers.runs import TOY_DATA, assert_same_tensors, fresh, metrics, run, toy, weights
from sitar.config import RunConfig
from sitar.data.base import DataConfig, Dataset
from sitar.data.types import (
    Data,
    EvalSplit,
    GroupBatch,
    GroupSplit,
    GroupTask,
    Task,
    TrainBatch,
    TrainGroups,
    TrainSplit,
    UnlabelledBatch,
    to_float,
)
from sitar.errors import ConfigError, DataError
from sitar.methods import FitPhase, GradientPhase, Method, Objective, data_for
from sitar.methods.jtt import JTT
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS, METHODS
from sitar.training.loop import Loop
from sitar.training.optimise import build_optimiser
from sitar.training.seeding import INIT, derive_seed, epoch_order
from sitar.training.step import EagerStep

NAMES = METHODS.names()
NEED_GROUPS = [name for name in NAMES if METHODS.get(name).needs_groups]
SMALL: dict[str, dict[str, Any]] = {
    "chroma_vae": {"neighbours": 5},
    "diffusion": {"unet_channels": [8], "layers_per_block": 1, "scoring_pairs": 2},
    "irm": {"penalty_from_epoch": 1},
    "vrex": {"penalty_from_epoch": 1},
}
SGD = {"optimiser": "sgd", "learning_rate": 0.2}


class CellsConfig(DataConfig):
    name: Literal["toy_cells"] = "toy_cells"
    present: tuple[int, ...] = (0, 2)
    """Classes with training samples, of three."""
    agreement: float = 0.8
    """Share of training samples whose second channel agrees with the class."""
    n: int = 60


class Cells(Dataset):
    """Images (3, 8, 8) whose first channel is the class and whose second mostly is. Groups are (class, agrees).

    Evaluation splits have all three classes.
    """

    Config = CellsConfig

    @staticmethod
    def load(config: CellsConfig, watch: Watch = unwatched) -> Data:
        random = torch.Generator().manual_seed(5)

        def samples(classes: tuple[int, ...], n: int, agreement: float) -> tuple[Tensor, Tensor, Tensor]:
            y = torch.tensor(classes)[torch.arange(n) % len(classes)]
            agrees = torch.rand(n, generator=random) < agreement
            x = torch.randint(0, 20, (n, 3, 8, 8), generator=random)
            x[:, 0] += 100 * y[:, None, None]
            x[:, 1] += 100 * torch.where(agrees, y, 2 - y)[:, None, None]
            return x.to(torch.uint8), y, agrees.long()

        names = tuple(f"label={label},agrees={a}" for label in range(3) for a in (0, 1))
        x_val, y_val, agrees = samples((0, 1, 2), 30, 0.5)
        val = EvalSplit(x_val, y_val, 2 * y_val + agrees, names, (1 / 6,) * 6)
        x, y, agrees = samples(config.present, config.n, config.agreement)
        groups = TrainGroups(2 * y + agrees, (torch.arange(config.n) % 5 == 0).long())
        return Data(TrainSplit(x, y), {"val": val}, ("a", "b", "c"), "cells", groups)


pytestmark = pytest.mark.usefixtures("_toys", "_cells")


@pytest.fixture
def _cells(monkeypatch: pytest.MonkeyPatch) -> None:
    DATASETS.names()
    monkeypatch.setitem(DATASETS._classes, "toy_cells", Cells)


def cells(method: str, *, train: dict[str, Any] | None = None, data: dict[str, Any] | None = None, **rest: Any):
    """Settings of a run on `Cells`, small wherever the method can be."""
    options = {**SMALL.get(method, {}), **rest}
    return toy(method, data={"name": "toy_cells", **(data or {})}, train=train, **options)


def load(config: RunConfig) -> Data:
    return DATASETS.get(config.data.name).load(config.data)  # type: ignore[attr-defined]


def at_start(config: RunConfig, data: Data) -> Method:
    """A method with the weights that a run of `config` starts from."""
    return fresh(config, data, seed=derive_seed(config.seed, INIT, 0))


def plain_epochs(
    network: nn.Module, data: Data, config: RunConfig, indices: Tensor, phase: int, epochs: int
) -> list[list[tuple[int, bool]]]:
    """ERM by hand. For each epoch every visit in order: the sample, and whether it was predicted wrongly then."""
    network.train()
    optimiser = build_optimiser(config.train, list(network.parameters()), torch.device("cpu"))
    batch_size = min(config.train.batch_size, len(indices))
    visits = []
    for epoch in range(epochs):
        visits.append([])
        for index in epoch_order(indices, batch_size, seed=config.seed, phase=phase, epoch=epoch):
            y = data.train.y[index]
            logits = network(to_float(data.train.x[index]))
            visits[-1] += zip(index.tolist(), (logits.argmax(1) != y).tolist(), strict=True)
            optimiser.zero_grad()
            nn.functional.cross_entropy(logits, y).backward()
            optimiser.step()
    return visits


@pytest.mark.parametrize("first_epochs", [1, 3])
def test_jtt_marks_what_was_wrong_while_the_weights_moved(first_epochs: int, tmp_path: Path) -> None:
    """50 samples in batches of 8 leave a last batch to fill: some samples are seen twice, and the last time counts."""
    train = {"epochs": 2, "batch_size": 8, "optimiser": "sgd", "learning_rate": 0.15}
    config = toy("jtt", train=train, first_epochs=first_epochs, copies=3, seed=4)
    folder = run(config, tmp_path / "run")
    saved = weights(folder)

    data = load(config)
    method = at_start(config, data)
    assert isinstance(method, JTT)
    visits = plain_epochs(method.first, data, config, torch.arange(50), phase=0, epochs=first_epochs)
    last = dict(visits[-1])
    by_hand = torch.tensor([last[sample] for sample in range(50)])
    assert torch.equal(saved["wrong"], by_hand)
    errors = int(by_hand.sum())
    assert [(line["phase"], line.get("error_set")) for line in metrics(folder)] == [
        *[("first", None)] * first_epochs,
        *[("second", errors)] * 2,
    ]

    with torch.no_grad():
        after_the_epoch = method.first.eval()(to_float(data.train.x)).argmax(1) != data.train.y
    at_first_sight = dict(reversed(visits[-1]))
    in_any_epoch = {sample for epoch in visits for sample, wrong in epoch if wrong}
    assert not torch.equal(after_the_epoch, by_hand)
    assert at_first_sight != last
    assert len(in_any_epoch) != errors

    indices = torch.cat([torch.arange(50), by_hand.nonzero().squeeze(1).repeat(3)])
    plain_epochs(method.second, data, config, indices, phase=1, epochs=2)
    second = {name: tensor for name, tensor in method.state_dict().items() if name.startswith(("first.", "second."))}
    assert_same_tensors({name: saved[name] for name in second}, second)


def test_jtt_without_errors_is_erm_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = cells("jtt", data={"agreement": 1.0, "n": 40}, train={"epochs": 2, **SGD}, first_epochs=6, seed=1)
    with caplog.at_level(logging.INFO, logger="sitar.methods.jtt"):
        folder = run(config, tmp_path / "run")
    (record,) = [record for record in caplog.records if record.name == "sitar.methods.jtt"]
    assert record.levelno == logging.WARNING
    assert "no error" in record.getMessage()
    assert "ERM" in record.getMessage()
    saved = weights(folder)
    assert not saved["wrong"].any()
    assert [line["error_set"] for line in metrics(folder) if line["phase"] == "second"] == [0, 0]

    data = load(config)
    method = at_start(config, data)
    assert isinstance(method, JTT)
    plain_epochs(method.second, data, config, torch.arange(40), phase=1, epochs=2)
    second = {f"second.{name}": tensor for name, tensor in method.second.state_dict().items()}
    assert_same_tensors({name: saved[name] for name in second}, second)


def test_jtt_with_errors_only_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = JTT.first_loss

    def all_wrong(self: JTT, batch: TrainBatch) -> dict[str, Tensor]:
        terms = honest(self, batch)
        self.wrong.fill_(True)
        return terms

    monkeypatch.setattr(JTT, "first_loss", all_wrong)
    with caplog.at_level(logging.INFO, logger="sitar.methods.jtt"):
        folder = run(toy("jtt", train={"epochs": 1}), tmp_path / "run")
    (record,) = [record for record in caplog.records if record.name == "sitar.methods.jtt"]
    assert record.levelno == logging.WARNING
    assert "all" in record.getMessage()
    assert metrics(folder)[-1]["error_set"] == 50


def test_jtt_says_how_many_errors_there_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sitar.methods.jtt"):
        folder = run(toy("jtt", train={"epochs": 1, **SGD}, seed=2), tmp_path / "run")
    (record,) = [record for record in caplog.records if record.name == "sitar.methods.jtt"]
    assert record.levelno == logging.INFO
    assert f"{int(weights(folder)['wrong'].sum())} of 50" in record.getMessage()


def test_the_first_stage_of_jtt_is_watched_by_its_own_network(tmp_path: Path) -> None:
    config = toy("jtt", train={"epochs": 1, "learning_rate": 0.05}, first_epochs=4)
    folder = run(config, tmp_path / "run")
    data = load(config)
    trained, untrained = at_start(config, data), at_start(config, data)
    trained.load_state_dict(weights(folder))
    assert isinstance(trained, JTT)
    assert isinstance(untrained, JTT)
    val = data.evaluation["val"]

    def accuracy(network: nn.Module) -> float:
        with torch.no_grad():
            return float((network.eval()(to_float(val.x)).argmax(1) == val.y).double().mean())

    lines = {(line["phase"], line["epoch"]): line["val"]["average"] for line in metrics(folder)}
    assert lines["first", 4] == pytest.approx(accuracy(trained.first))
    assert lines["first", 4] != pytest.approx(accuracy(untrained.second))
    assert lines["second", 1] == pytest.approx(accuracy(trained.second))


def test_selection_passes_over_the_first_stage_of_jtt(tmp_path: Path) -> None:
    config = toy("jtt", train={"epochs": 3, "selection": "val_average"}, first_epochs=2)
    folder = run(config, tmp_path / "run")
    second = [line["val"]["average"] for line in metrics(folder) if line["phase"] == "second"]
    assert folder.result()["selected_epoch"] == 1 + second.index(max(second))


def test_who_needs_groups() -> None:
    assert set(NEED_GROUPS) >= {"group_dro", "irm", "vrex", "dfr"}
    free = {"sitar", "erm", "jtt", "lff", "chroma_vae", "diffusion", "cvar_dro", "afr", "jacobian", "curvature"}
    assert not free & set(NEED_GROUPS)


@pytest.mark.parametrize("name", NEED_GROUPS)
def test_data_without_groups_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="group of every training sample"):
        run(toy(name, data={**TOY_DATA, "groups": False}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("k", [51, 1000])
def test_more_neighbours_than_samples_are_refused(k: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"neighbours {k}.* 50 "):
        run(toy("chroma_vae", neighbours=k), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_as_many_neighbours_as_samples_are_a_vote_of_all(tmp_path: Path) -> None:
    config = toy("chroma_vae", train={"epochs": 1}, neighbours=50)
    folder = run(config, tmp_path / "run")
    method = at_start(config, load(config))
    method.load_state_dict(weights(folder))
    with torch.no_grad():
        logits = method.eval().logits(to_float(load(config).evaluation["val"].x))
    assert torch.equal(logits, logits[:1].expand_as(logits))


@pytest.mark.parametrize("shortcut_dim", [4, 9])
@pytest.mark.parametrize("head", ["knn", "logistic", "mlp"])
def test_a_shortcut_that_takes_all_latents_is_refused(shortcut_dim: int, head: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"shortcut_dim {shortcut_dim}.*latent_dim, which is 4"):
        run(toy("chroma_vae", neighbours=5, shortcut_dim=shortcut_dim, head=head), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("present", [(0, 2), (0, 1), (1, 2)], ids=["middle", "last", "first"])
@pytest.mark.parametrize("name", NAMES)
def test_a_class_without_training_samples(
    name: str, present: tuple[int, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three classes of which one is never seen in training, which is said; validation has all three."""
    config = cells(name, train={"epochs": 2}, data={"present": list(present)})
    folder = run(config, tmp_path / "run")
    caplog.clear()
    classes = load(config).checked().classes
    (absent,) = {0, 1, 2} - set(present)
    assert repr(classes[absent]) in caplog.text
    saved = weights(folder)
    assert all(torch.isfinite(tensor).all() for tensor in saved.values())
    data = data_for(config, load(config))
    assert [count > 0 for count in data.task.class_counts] == [c in present for c in range(3)]
    method = at_start(config, data)
    method.load_state_dict(saved)
    with torch.no_grad():
        logits = method.eval().logits(to_float(data.evaluation["val"].x))
    assert logits.shape == (30, 3)
    assert torch.isfinite(logits).all()
    assert folder.result()["splits"]["val"]["n"] == 30


class Seen:
    """What a run hands to its method: types of task, batches and splits, and the samples of each step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[type] = []
        self.batches: set[type] = set()
        self.splits: set[type] = set()
        self.index: list[Tensor] = []
        self.group: list[Tensor] = []
        seen, build, fit = self, sitar.training.run.build_method, Loop._fit

        class Spy(EagerStep):
            def __init__(self, objectives: Any, *rest: Any, **sizes: Any) -> None:
                watched = [dataclasses.replace(objective, loss=seen._watch(objective)) for objective in objectives]
                super().__init__(watched, *rest, **sizes)

        def spy_build(config: RunConfig, task: Task) -> Method:
            seen.tasks.append(type(task))
            return build(config, task)

        def spy_fit(loop: Loop, phase: FitPhase, number: int) -> None:
            real = phase.fit

            def watched(split: Any) -> None:
                seen.splits.add(type(split))
                real(split)

            fit(loop, dataclasses.replace(phase, fit=watched), number)

        monkeypatch.setattr(sitar.training.loop, "EagerStep", Spy)
        monkeypatch.setattr(sitar.training.run, "build_method", spy_build)
        monkeypatch.setattr(Loop, "_fit", spy_fit)

    def _watch(self, objective: Objective) -> Any:
        def loss(batch: Any) -> dict[str, Tensor]:
            self.batches.add(type(batch))
            self.index.append(batch.index.clone())
            if hasattr(batch, "group"):
                self.group.append(batch.group.clone())
            return objective.loss(batch)

        return loss


@pytest.mark.parametrize("name", NAMES)
def test_groups_reach_only_methods_that_declare_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data has groups; only the exact types with them carry any."""
    seen = Seen(monkeypatch)
    folder = run(cells(name, train={"epochs": 1}), tmp_path / "run")
    given, unlabelled = name in NEED_GROUPS, METHODS.get(name).needs_unlabelled
    assert seen.batches == {GroupBatch if given else UnlabelledBatch if unlabelled else TrainBatch}
    assert seen.tasks == [GroupTask if given else Task]
    assert seen.splits <= {GroupSplit if given else TrainSplit}
    assert seen.splits or name not in {"afr", "dfr", "chroma_vae"}
    result = json.loads(folder.result_file.read_text())
    assert result["needs_groups"] is given
    assert result["unlabelled"] == (30 if unlabelled else 0)


def test_the_groups_of_a_batch_are_those_of_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    config = cells("group_dro", train={"epochs": 1})
    run(config, tmp_path / "run")
    groups = load(config).train_groups
    assert groups is not None
    assert torch.equal(torch.cat(seen.group), groups.group[torch.cat(seen.index)])
    assert len(torch.cat(seen.group).unique()) > 1


@pytest.mark.parametrize(("name", "label"), [("group_dro", "group"), ("irm", "environment"), ("vrex", "environment")])
def test_epochs_draw_every_group_equally_often(name: str, label: str) -> None:
    config = cells(name, data={"n": 500, "agreement": 0.93})
    data = load(config)
    labels = getattr(data.train_groups, label)
    phase = next(at_start(config, data).phases())
    assert isinstance(phase, GradientPhase)
    assert phase.sampling is not None

    def draw(seed: int, epoch: int) -> Tensor:
        return epoch_order(torch.arange(500), 50, seed=seed, phase=0, epoch=epoch, sampling=phase.sampling)

    present = labels.unique()
    drawn = torch.cat([draw(0, epoch).flatten() for epoch in range(20)])
    shares = torch.tensor([float((labels[drawn] == g).double().mean()) for g in present])
    own = torch.tensor([float((labels == g).double().mean()) for g in present])
    assert own.max() > 2 * own.min()
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / len(present)), atol=0.02, rtol=0)
    within = Counter(drawn[labels[drawn] == present[own.argmax()]].tolist())  # and every sample of a group alike
    assert len(within) > 0.99 * int((labels == present[own.argmax()]).sum())
    assert torch.equal(draw(3, 1), draw(3, 1))
    assert not torch.equal(draw(3, 1), draw(3, 2))
    assert not torch.equal(draw(3, 1), draw(4, 1))


@pytest.mark.parametrize(("name", "label"), [("group_dro", "group"), ("irm", "environment"), ("vrex", "environment")])
def test_a_run_draws_every_group_equally_often(
    name: str, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    config = cells(name, train={"epochs": 12}, data={"n": 100, "agreement": 0.9})
    run(config, tmp_path / "run")
    labels = getattr(load(config).train_groups, label)
    counts = torch.bincount(labels[torch.cat(seen.index)]).double()
    shares = counts[counts > 0] / counts.sum()
    own = torch.bincount(labels).double()
    assert own.max() > 2 * own[own > 0].min()
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / len(shares)), atol=0.06, rtol=0)


@pytest.mark.parametrize("name", ["dfr", "afr"])
def test_the_held_out_samples_are_not_trained_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    folder = run(cells(name, train={"epochs": 2}, held_out=0.25), tmp_path / "run")
    held_out = weights(folder)["held_out"]
    assert held_out.sum() == 15
    visited = torch.bincount(torch.cat(seen.index), minlength=60) > 0
    assert torch.equal(visited, ~held_out)


def test_the_criterion_chooses_among_epochs_of_afrs_last_layer(tmp_path: Path) -> None:
    config = cells("afr", train={"epochs": 3, "selection": "val_average"}, held_out=0.25, last_epochs=4, last_rate=0.1)
    folder = run(config, tmp_path / "run")
    lines = [line for line in metrics(folder) if line["phase"] == "last layer"]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    best = max(lines, key=lambda line: line["val"]["average"])
    assert folder.result()["selected_epoch"] == best["epoch"]
    assert folder.result()["splits"]["val"]["average"] == pytest.approx(best["val"]["average"])


@pytest.mark.parametrize("settings", [{"epochs": 3}, {"batch_size": 2}, {"lr": 0.1}, {"gradient_clip": 1.0}])
def test_an_objective_takes_settings_of_its_optimiser_only(settings: dict[str, Any]) -> None:
    parameter = nn.Parameter(torch.zeros(()))
    with pytest.raises(ValueError, match=f"cannot set .*{next(iter(settings))}"):
        Objective(lambda _: {"loss": parameter}, [parameter], {"learning_rate": 0.1, **settings})
    Objective(lambda _: {"loss": parameter}, [parameter], {"learning_rate": 0.1, "optimiser": "sgd", "momentum": 0.0})
