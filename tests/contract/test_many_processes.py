"""Several processes with a share of the batch each take the steps that one process takes with the whole batch."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed import HashStore

import sitar
from contract.test_methods import VARIANTS
from helpers.launch import by_hand, ended, environment, free_port, started, together, torchrun
from helpers.runs import TINY_METHOD, assert_close_runs, assert_same_run, metrics
from sitar.config import NamedConfig, run_config
from sitar.data.types import TrainBatch
from sitar.errors import ConfigError
from sitar.functional.disagreement import (
    agreement,
    disagreement_losses,
    marginal_divergence,
    mutual_information,
    smallest_mean,
)
from sitar.functional.nuisance import column_rows, covariance_within
from sitar.methods.base import NetworkMethod
from sitar.registry import DATASETS, METHODS
from sitar.run_folder import RunFolder
from sitar.testing import toy as contract_toy
from sitar.testing.methods import MODEL, TRAIN, MethodCase, gradient_phases
from sitar.training.processes import ALONE, Launch, ManyProcesses, Processes, launch
from sitar.training.run import train_config

BATCH = 63  # which two processes cannot share evenly
NAMES = [name for name in METHODS.names() if METHODS.get(name).one_process is None]
CASES = [*((name, {}, classes) for name in NAMES for classes in (2, 3)), *VARIANTS]
ENCODER = {"latent_dim": 4, "hidden": 8, "encoder": "test_resnet", "encoder_weights": "random"}
Step = dict[str, Tensor]


def case_of(name: str, options: dict[str, Any], classes: int) -> MethodCase:
    return MethodCase(name, {**TINY_METHOD.get(name, {}), **options}, classes)


def first_steps(case: MethodCase, processes: Processes = ALONE) -> list[Step]:
    """The terms and gradients of each objective at its first step, and the buffers that it leaves."""
    method, split = case.fresh(), case.data.train
    processes.prepare(method)
    method.observe(split, case.data.nuisances)
    method.begin_epoch(1)
    found: list[Step] = []
    for phase in gradient_phases(method, split):
        indices = torch.arange(len(split)) if phase.indices is None else phase.indices
        size = min(BATCH, len(indices))
        torch.manual_seed(0)
        with processes.sharing(size):
            batch = split.batch(indices[:size][processes.part(size)])
        for objective in phase.objectives:
            torch.manual_seed(len(found))
            method.zero_grad()
            with processes.sharing(size):
                terms = objective.loss(batch)
                terms["loss"].backward()
                processes.average(objective.parameters)
            names = {id(parameter): name for name, parameter in method.named_parameters()}
            gradients = {names[id(p)]: p.grad for p in objective.parameters if p.grad is not None}
            state = {f"term {name}": term for name, term in terms.items()} | gradients | dict(method.named_buffers())
            found.append({name: tensor.detach().clone() for name, tensor in state.items()})
    return found


def all_first_steps(processes: Processes, folder: Path, cases: list[Any]) -> None:
    found = [first_steps(case_of(*case), processes) for case in cases]
    torch.save(found, folder / f"{processes.rank}.pt")


def assert_close_steps(ours: list[Step], theirs: list[Step], what: object) -> None:
    assert len(ours) == len(theirs) > 0
    for one, two in zip(ours, theirs, strict=True):
        assert one.keys() == two.keys()
        for name, tensor in one.items():
            size = max(1.0, float(two[name].double().abs().max())) if tensor.numel() else 1.0
            assert torch.allclose(tensor.double(), two[name].double(), rtol=1e-5, atol=1e-5 * size), f"{what}, {name}"


def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    """For SITAR with every kind of noise: its correlation v, its moments, its noise and its gradients."""
    cases = [("sitar", {"noise": noise, "class_weight": "balanced"}, 2) for noise in ("axis", "direction", "swap")]
    together(all_first_steps, tmp_path, cases)
    for rank in range(2):
        for case, found in zip(cases, torch.load(tmp_path / f"{rank}.pt"), strict=True):
            alone = first_steps(case_of(*case))
            assert_close_steps(found, alone, case)
            assert alone[0]["term shortcut_score"].max() > 0.1


def equations(processes: Processes, folder: Path | None, mu: Tensor, y: Tensor, p: Tensor) -> list[Tensor]:
    """What varies with a nuisance, and how far heads agree, by the rows of a process."""
    own = processes.part(len(mu))
    mu, y, p = mu[own], y[own], p[own]
    with processes.sharing(BATCH):
        found = [covariance_within(mu, y, 2, torch.ones(3)), *column_rows(mu, p[:, 0] - 0.5)]
        found += [mutual_information(p), marginal_divergence(p, torch.tensor([0.3, 0.7])), agreement(p[:, 0], p[:, 1])]
        found.append(smallest_mean(disagreement_losses(p.log()), torch.tensor(0.2)))
    if folder is not None:
        torch.save(found, folder / f"{processes.rank}.pt")
    return found


def test_two_processes_have_the_statistics_of_one(tmp_path: Path) -> None:
    """They are those of the global batch, whose halves differ here."""
    random = torch.Generator().manual_seed(0)
    place = torch.arange(BATCH).unsqueeze(1) / 10
    mu, y = torch.randn(BATCH, 3, generator=random) + place, torch.arange(BATCH) // 5 % 2
    p = (2 * torch.randn(BATCH, 2, 2, generator=random) + place.unsqueeze(2) * torch.tensor([0, 0.3])).softmax(2)
    together(equations, tmp_path, mu, y, p)
    for rank in range(2):
        for ours, alone in zip(torch.load(tmp_path / f"{rank}.pt"), equations(ALONE, None, mu, y, p), strict=True):
            torch.testing.assert_close(ours, alone)


@pytest.mark.parametrize(
    ("count", "cases"),
    [
        pytest.param(2, CASES, marks=pytest.mark.ci),
        pytest.param(3, [(name, {}, 3) for name in NAMES], marks=pytest.mark.slow),
    ],
)
def test_processes_have_the_gradients_of_one_for_every_method(count: int, cases: list[Any], tmp_path: Path) -> None:
    together(all_first_steps, tmp_path, cases, count=count)
    for rank in range(count):
        for case, found in zip(cases, torch.load(tmp_path / f"{rank}.pt"), strict=True):
            assert_close_steps(found, first_steps(case_of(*case)), case)


def whole_run(
    case: MethodCase, path: Path, processes: Processes = ALONE, model: Any = MODEL, train: Any = TRAIN
) -> RunFolder:
    config = case.config()
    sections = {"model": {**MODEL, **model}, "train": {**TRAIN, "epochs": 3, **train}}
    with DATASETS.holding({contract_toy.NAME: contract_toy.Toy}):
        config = run_config({**config.to_dict(), **sections})
    with DATASETS.holding({contract_toy.NAME: contract_toy.Toy}):
        return train_config(config, RunFolder(path), device="cpu", progress=False, processes=processes)


def whole_runs(processes: Processes, folder: Path) -> None:
    for name in NAMES:
        whole_run(case_of(name, {}, 2), folder / name, processes)
    for frozen in (False, True):
        model = {**ENCODER, "freeze_encoder": frozen}
        whole_run(case_of("sitar", {}, 2), folder / f"encoder {frozen}", processes, model)
    selecting = {"epochs": 6, "selection": "val_average", "patience": 1, "augment": "crop_flip", "gradient_clip": 0.1}
    whole_run(case_of("sitar", {}, 2), folder / "selecting", processes, train=selecting)


@pytest.mark.slow
def test_whole_runs_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    """Every phase of every method, batch normalisation of an encoder, selection, metrics and predictions."""
    together(whole_runs, tmp_path / "two")
    whole_runs(ALONE, tmp_path / "one")
    for path in (tmp_path / "one").iterdir():
        one, two = RunFolder(path), RunFolder(tmp_path / "two" / path.name)
        assert two.is_done
        assert_close_runs(two, one, relative=1e-4)
        ours, theirs = two.predictions(), one.predictions()
        assert ours.keys() == theirs.keys()
        for name, array in theirs.items():
            np.testing.assert_allclose(ours[name], array, rtol=1e-3, atol=1e-3, err_msg=f"{path.name}, {name}")
        assert two.result()["selected_epoch"] == one.result()["selected_epoch"]
        assert two.environment()["processes"] == 2
        assert one.environment()["processes"] == 1


def prepare_in_turn(processes: Processes, folder: Path) -> None:
    logger = logging.getLogger("sitar.training.processes")
    logger.addHandler(logging.FileHandler(folder / f"{processes.rank}.log"))
    logger.setLevel(logging.INFO)

    def prepare() -> None:
        time.sleep(3 if processes.is_first else 0)
        with (folder / "order").open("a") as file:
            file.write(str(processes.rank))

    processes.in_turn("data", prepare)
    assert processes.told(lambda: {"rank": processes.rank, "none": None}) == {"rank": 0, "none": None}
    assert processes.told(lambda: bytes([processes.rank, 255])) == bytes([0, 255])


def test_the_first_process_prepares_the_data_and_the_others_say_that_they_wait(tmp_path: Path) -> None:
    together(prepare_in_turn, tmp_path)
    assert (tmp_path / "order").read_text() == "01"
    assert (tmp_path / "0.log").read_text() == ""
    assert (tmp_path / "1.log").read_text() == "Process 1 waits for process 0, which prepares the data.\n"


# What is refused

FIRST_OF_TWO = Launch(rank=0, count=2, local_rank=0, local_count=2, machine=0)


class OwnConfig(NamedConfig):
    name: Literal["own"] = "own"


class Own(NetworkMethod):
    """A loss that somebody has written for one process: a mean over the samples that it is given."""

    Config = OwnConfig

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(self.logits(batch.x), batch.y)}


def train_own(processes: Processes, folder: Path) -> None:
    with METHODS.holding({"own": Own}), pytest.raises(ConfigError, match="differ between processes"):
        whole_run(MethodCase("own"), folder / "run", processes)


def test_a_loss_of_one_process_is_found_out(tmp_path: Path) -> None:
    together(train_own, tmp_path)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Dropout(0.1), "has dropout"),
        (nn.SyncBatchNorm(3), "SyncBatchNorm"),
    ],
)
def test_layers_that_cannot_be_shared_are_refused(layer: nn.Module, message: str) -> None:
    processes, method = ManyProcesses(FIRST_OF_TWO, HashStore()), MethodCase("erm").fresh()
    method.added = layer
    with pytest.raises(ConfigError, match=message):
        processes.prepare(method)


def test_a_method_may_refuse() -> None:
    processes, method = ManyProcesses(FIRST_OF_TWO, HashStore()), MethodCase("erm").fresh()
    method.one_process = "It counts on its fingers."
    with pytest.raises(ConfigError, match=r"one process only\. It counts on its fingers"):
        processes.prepare(method)


def test_a_batch_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 samples, and 2 processes cannot share it"):
        ManyProcesses(FIRST_OF_TWO, HashStore()).sharing(1)


def test_a_launcher_that_tells_no_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch() is None
    for name, value in environment(1, 2, 29500).items():
        monkeypatch.setenv(name, value)
    assert launch() == Launch(rank=1, count=2, local_rank=1, local_count=2, machine=0)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ConfigError, match="RANK=first is no number"):
        launch()


def test_processes_do_not_share_a_gpu() -> None:
    processes = ManyProcesses(FIRST_OF_TWO, HashStore())
    assert processes.device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="all 2 processes on one device"):
        processes.device("cuda:0")


def test_every_sample_belongs_to_one_process() -> None:
    for size in (2, 3, 64, 65):
        for count in (1, 2, 3):
            launches = [Launch(rank, count, rank, count, 0) for rank in range(count)]
            parts = [range(size)[ManyProcesses(launched, HashStore()).part(size)] for launched in launches]
            assert [place for part in parts for place in part] == list(range(size))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


# Commands, as a user types them

TINY = {"data.image_size": 14, "data.train_size": 300, "data.eval_size": 100, "model.channels": "[4]",
        "model.latent_dim": 4, "train.batch_size": 64, "train.checkpoint_seconds": 0}  # fmt: skip
EPOCHS = 20


def train(out: str, *more: str, epochs: int = EPOCHS, **settings: Any) -> list[str]:
    """The arguments of a tiny run on the CPU."""
    words = [word for key, value in {**TINY, "train.epochs": epochs}.items() for word in ("--set", f"{key}={value}")]
    return ["train", "color_mnist/sitar", *words, "--device", "cpu", "--out", out, *more]


def wait_for_epochs(path: Path, epochs: int, seconds: float = 120) -> None:
    metrics, end = path / "metrics.jsonl", time.monotonic() + seconds
    while not (metrics.exists() and len(metrics.read_bytes().splitlines()) >= epochs):
        assert time.monotonic() < end, "the run has logged nothing"
        time.sleep(0.02)


def children(pid: int) -> dict[str, int]:
    """The processes that a launcher has started, by their rank."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        told = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {word.removeprefix(b"RANK=").decode(): int(child) for word in told if word.startswith(b"RANK=")}
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    """A run of two processes under torchrun, and what it printed on standard output."""
    folder = tmp_path_factory.mktemp("undisturbed")
    status, out, err = ended(torchrun(train("run"), folder))
    assert status == 0, err
    return RunFolder(folder / "run"), out


@pytest.mark.ci
def test_torchrun_trains_one_run(undisturbed: tuple[RunFolder, str], tmp_path: Path) -> None:
    folder, out = undisturbed
    assert out.count("Run folder: run") == 1, "only the first process shows the result"
    assert folder.environment()["processes"] == 2
    assert {file.name for file in folder.path.iterdir()} == {
        "config.yaml", "metrics.jsonl", "result.json", "predictions.npz", "environment.json", "checkpoint", "done",
    }  # fmt: skip
    model = sitar.load(folder)
    assert model.evaluate()["val"]["average"] == pytest.approx(folder.result()["splits"]["val"]["average"])
    overrides = [f"{key}={value}" for key, value in {**TINY, "train.epochs": EPOCHS}.items()]
    one = sitar.train("color_mnist/sitar", overrides=overrides, device="cpu", out=tmp_path / "one", progress=False)
    assert_close_losses(folder, one)


def assert_close_losses(ours: RunFolder, theirs: RunFolder) -> None:
    """After 100 steps, weights that hardly have a gradient have drifted, and losses and scores still agree."""
    for one, two in zip(metrics(ours), metrics(theirs), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
        assert one["shortcut_score"] == pytest.approx(two["shortcut_score"], abs=1e-3)
    assert_close_runs(ours, theirs, relative=0.02)


@pytest.mark.parametrize("rank", [pytest.param("0", marks=pytest.mark.slow), pytest.param("1", marks=pytest.mark.ci)])
def test_a_killed_process_ends_the_run_which_resumes_exactly(
    rank: str, undisturbed: tuple[RunFolder, str], tmp_path: Path
) -> None:
    launcher = torchrun(train("run"), tmp_path)
    wait_for_epochs(tmp_path / "run", 5)
    workers = children(launcher.pid)
    assert len(workers) == 2
    os.kill(workers[rank], signal.SIGKILL)
    status, _, _ = ended(launcher, seconds=30)
    assert status != 0
    assert not any(is_alive(pid) for pid in workers.values())
    assert not RunFolder(tmp_path / "run").is_done
    status, _, err = ended(torchrun(train("run", "--resume"), tmp_path))
    assert status == 0, err
    assert_same_run(RunFolder(tmp_path / "run"), undisturbed[0])


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_launcher_leaves_no_process_and_a_run_that_resumes(
    sent: signal.Signals, undisturbed: tuple[RunFolder, str], tmp_path: Path
) -> None:
    launcher = torchrun(train("run"), tmp_path)
    wait_for_epochs(tmp_path / "run", 5)
    workers = children(launcher.pid)
    launcher.send_signal(sent)
    assert ended(launcher, seconds=60)[0] != 0
    assert not any(is_alive(pid) for pid in workers.values())
    assert RunFolder(tmp_path / "run").state_file.exists()
    assert ended(torchrun(train("run", "--resume"), tmp_path))[0] == 0
    assert_same_run(RunFolder(tmp_path / "run"), undisturbed[0])


@pytest.mark.slow
def test_without_a_launcher_the_others_notice_too(undisturbed: tuple[RunFolder, str], tmp_path: Path) -> None:
    """One message says so. The run goes on with another number of processes, which is said as well."""
    first, second = by_hand(train("run"), tmp_path)
    wait_for_epochs(tmp_path / "run", 5)
    second.send_signal(signal.SIGKILL)
    status, _, err = ended(first, seconds=30)
    ended(second)
    assert status == 2
    assert err.count("Another process of this run has ended") == 1
    assert "Traceback" not in err
    alone = started([sys.executable, "-m", "sitar", *train("run", "--resume")], tmp_path, {})
    status, _, err = ended(alone)
    assert status == 0, err
    assert "was started on 2 processes and continues on 1" in err
    assert_close_losses(RunFolder(tmp_path / "run"), undisturbed[0])


@pytest.mark.ci
def test_accelerate_launches_it(undisturbed: tuple[RunFolder, str], tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launcher += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    settings = {"OMP_NUM_THREADS": "1", "HF_HOME": str(tmp_path)}
    status, out, err = ended(started([*launcher, "-m", "sitar", *train("run")], tmp_path, settings))
    assert status == 0, err
    assert out.count("Run folder: run") == 1
    assert_same_run(RunFolder(tmp_path / "run"), undisturbed[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "method.alpha=-1"], "method.alpha"),
        (["--set", "data.root=nowhere"], "nowhere"),
        (["--set", "train.learning_rate=1e30"], "The loss became"),
    ],
)
def test_an_error_of_all_processes_is_said_once(more: list[str], message: str, tmp_path: Path) -> None:
    status, _, said = ended(torchrun(train("run", *more, epochs=3), tmp_path), seconds=60)
    assert status != 0
    assert said.count("Error: ") - said.count("ChildFailedError: ") == 1
    assert message in said
    assert "sitar/training" not in said, "no traceback of ours"


@pytest.mark.slow
def test_processes_with_different_commands_are_refused(tmp_path: Path) -> None:
    port, commands = free_port(), [train("run"), train("run", "--seed", "3")]
    processes = [
        started([sys.executable, "-m", "sitar", *command], tmp_path, environment(rank, 2, port))
        for rank, command in enumerate(commands)
    ]
    said = "".join(ended(process, seconds=60)[2] for process in processes)
    assert "Process 1 was given other settings" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("step", ["captured", "eager"])
def test_a_launched_gpu_trains_the_run_of_a_plain_one(step: str, tmp_path: Path) -> None:
    """One process of torchrun sends its messages over NCCL, to itself, also within the captured step."""
    overrides = [f"{key}={value}" for key, value in {**TINY, "train.epochs": 3, "train.step": step}.items()]
    words = [word for setting in overrides for word in ("--set", setting)]
    command = ["train", "color_mnist/sitar", *words, "--device", "cuda", "--out", "run"]
    status, _, err = ended(torchrun(command, tmp_path, count=1))
    assert status == 0, err
    plain = sitar.train("color_mnist/sitar", overrides=overrides, device="cuda", out=tmp_path / "plain", progress=False)
    assert_close_runs(RunFolder(tmp_path / "run"), plain, relative=1e-3)
