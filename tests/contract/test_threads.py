"""A run takes the fastest number of CPU threads, and nothing of its result tells that it was looked for."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sitar
import sitar.training.loop
from helpers.runs import TINY_TRAIN, assert_same_run, run, settings, toy, weights
from sitar import threads
from sitar.config import RunConfig
from sitar.errors import TrainingError
from sitar.run_folder import RunFolder
from sitar.threads import SETTINGS, Rehearsal
from sitar.training.step import EagerStep

pytestmark = pytest.mark.usefixtures("_toys")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine of two cores, and nobody has said how many threads to take."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "torchs_numbers", lambda: {2})
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def recorded(folder: RunFolder) -> int:
    return json.loads(folder.environment_file.read_text())["threads"]


@contextmanager
def slow_on(number: int) -> Iterator[list[int]]:
    """Steps take long on `number` threads, by a clock that only they move; the threads of all steps."""
    step, fastest, used, now = EagerStep.run, threads.fastest, list[int](), [0.0]

    def timed(self: EagerStep) -> None:
        used.append(torch.get_num_threads())
        now[0] += 0.05 if used[-1] == number else 0.001
        step(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerStep, "run", timed)
        patch.setattr(threads, "WORTH_SECONDS", 0.0)
        patch.setattr(threads, "fastest", lambda most, rehearsal: fastest(most, rehearsal, lambda: now[0]))
        yield used


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("slow", [1, 2])
def test_a_run_takes_the_faster_number(slow: int, tmp_path: Path) -> None:
    with slow_on(slow) as used:
        folder = run(toy("erm"), tmp_path / "run")
    assert used[-12:] == [3 - slow] * 12
    assert recorded(folder) == 3 - slow
    assert torch.get_num_threads() == 2


MOVED: dict[str, Callable[[], RunConfig]] = {
    "network": lambda: settings("erm", train={**TINY_TRAIN, "optimiser": "sgd", "momentum": 0.9, "schedule": "cosine"}),
    "noise": lambda: settings("sitar", noise="direction"),
    "a penalty that begins later": lambda: settings("irm", penalty_from_epoch=1),
    "two optimisers": lambda: settings("sitar", vae="factor"),
    "marks samples": lambda: settings("jtt"),
    "two networks and running losses": lambda: settings("lff"),
    "weights of groups": lambda: settings("group_dro"),
    "a last layer": lambda: settings("dfr"),
    "several phases": lambda: toy("toy_relay", dropout=0.5),
    "visits": lambda: toy("toy_tally", second_slope=2.0),
}


@pytest.mark.parametrize("kind", MOVED)
def test_looking_for_the_number_changes_no_result(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = MOVED[kind]()
    never_looked = run(config, tmp_path / "never")
    tried = []

    def look(_: int, rehearsal: Rehearsal) -> int:
        for number in (1, 2, 1, 1):
            torch.set_num_threads(number)
            rehearsal.step()
            tried.append(number)
        return 1

    monkeypatch.setattr(threads, "users_number", lambda: None)
    monkeypatch.setattr(threads, "fastest", look)
    assert_same_run(run(config, tmp_path / "looked"), never_looked)
    assert tried == [1, 2, 1, 1]


@pytest.mark.usefixtures("two")
def test_a_rehearsal_leaves_the_state_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers, gradients and the values of all tensors."""
    seen: list[Any] = []

    def state(loop: sitar.training.loop.Loop) -> dict[str, Any]:
        tensors = {name: tensor.clone() for name, tensor in loop.method.state_dict().items()}
        return {**tensors, "random": torch.get_rng_state()}

    rehearse = sitar.training.loop.Loop.rehearse

    @contextmanager
    def watched(self: sitar.training.loop.Loop) -> Iterator[Rehearsal | None]:
        seen.append(state(self))
        with rehearse(self) as rehearsal:
            assert rehearsal is not None
            assert rehearsal.steps == 8
            yield rehearsal
            seen.append(state(self))
        seen.append(state(self))
        assert all(parameter.grad is None for parameter in self.method.parameters())

    monkeypatch.setattr(sitar.training.loop.Loop, "rehearse", watched)
    run(toy("toy_relay"), tmp_path / "run")
    before, during, after = seen
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, during[name])}
    assert moved == {"first.2.weight", "first.2.bias", "loss_of", "random"}
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("end", ["done", "failed", "stopped", "failed at once"])
def test_the_callers_number_is_put_back(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_on(2), monkeypatch.context() as patch:
        if end == "done":
            run(toy("erm"), tmp_path / "run")
        elif end == "failed":
            with pytest.raises(TrainingError):
                run(toy("toy_tally", nan_from=2), tmp_path / "run")
        elif end == "stopped":
            patch.setattr(sitar.training.loop.Loop, "take", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(toy("erm"), tmp_path / "run")
        else:
            patch.setattr(EagerStep, "run", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(toy("erm"), tmp_path / "run")
    assert torch.get_num_threads() == 2


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@contextmanager
def stopped_in_epoch(number: int) -> Iterator[None]:
    begin, left = EagerStep.begin_epoch, [number]

    def begin_epoch(self: EagerStep, order: torch.Tensor) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        begin(self, order)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerStep, "begin_epoch", begin_epoch)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("number", [1, 2])
def test_a_resumed_run_keeps_its_number(number: int, tmp_path: Path) -> None:
    """Though the other one is faster now. The first epoch that begins is that of the rehearsal."""
    with slow_on(3 - number), stopped_in_epoch(3):
        run(toy("erm"), tmp_path / "run")
    assert recorded(RunFolder(tmp_path / "run")) == number
    with slow_on(number) as used:
        folder = run(toy("erm"), tmp_path / "run", resume=True)
    assert set(used) == {number}
    assert len(used) == 8
    (again,) = json.loads(folder.environment_file.read_text())["resumed"]
    assert (recorded(folder), again["threads"]) == (number, number)


@pytest.mark.usefixtures("two")
def test_a_users_number_wins_over_that_of_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with slow_on(1), stopped_in_epoch(3):
        run(toy("erm"), tmp_path / "run")
    torch.set_num_threads(1)
    with slow_on(0) as used, caplog.at_level(logging.WARNING):
        folder = run(toy("erm"), tmp_path / "run", resume=True)
    assert set(used) == {1}
    (again,) = json.loads(folder.environment_file.read_text())["resumed"]
    assert (recorded(folder), again["threads"]) == (2, 1)
    assert "started on 2 threads and continues on 1" in caplog.text
    assert "differ in the last digits" in caplog.text


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("change", "is_said"),
    [
        ({"threads": 64}, True),  # of a larger machine: here they would wait for each other
        ({"threads": 64, "device": "NVIDIA H100"}, False),  # how many a GPU's run had is of no interest
        ({"threads": None}, False),
        ({"threads": "2"}, False),
    ],
)
def test_numbers_that_cannot_be_kept(
    change: dict[str, Any], is_said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with slow_on(1), stopped_in_epoch(3):
        run(toy("erm"), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.write_environment({**json.loads(folder.environment_file.read_text()), **change})
    with slow_on(2) as used, caplog.at_level(logging.WARNING):
        run(toy("erm"), tmp_path / "run", resume=True)
    assert used[-8:] == [1] * 8
    assert ("started on 64 threads and continues on 1" in caplog.text) == is_said


@pytest.mark.usefixtures("two")
def test_the_record_is_there_before_the_first_step(tmp_path: Path) -> None:
    with slow_on(2), stopped_in_epoch(2):
        run(toy("erm"), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert recorded(folder) == 1
    assert not folder.state_file.exists()


def test_a_users_number_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "fastest", _interrupt)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(threads, "torchs_numbers", lambda: {torch.get_num_threads()})
    assert recorded(run(toy("erm"), tmp_path / "run")) == torch.get_num_threads()


BUSY = "while True: pass"


@pytest.mark.slow
def test_a_busy_machine_slows_a_small_run_as_much_as_one_thread(tmp_path: Path) -> None:
    """Programs on every core, and features of your own: without a choice a run takes tens of times as long."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3000, 64)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=(x[:, 0] > 0).astype(int))
    cores = len(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores)]
    try:
        alone = [_seconds(tmp_path, f"alone{i}", {"OMP_NUM_THREADS": "1"}) for i in range(2)]
        default = [_seconds(tmp_path, f"default{i}", {}) for i in range(2)]
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert min(default) <= 2 * max(alone) + 3


def _seconds(tmp_path: Path, name: str, environment: dict[str, str]) -> float:
    """Of a training in a process of its own, as `result.json` has them."""
    clean = {key: value for key, value in os.environ.items() if key not in SETTINGS}
    source = str(Path(sitar.__file__).parents[1])
    command = [sys.executable, "-m", "sitar", "train", "npz/sitar_best", "--set", f"data.file={tmp_path / 'data.npz'}"]
    out = tmp_path / name
    subprocess.run(
        [*command, "--set", "train.least_steps=0", "--set", "train.epochs=30", "--out", str(out), "--quiet"],
        env={**clean, "PYTHONPATH": source, **environment}, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert weights(RunFolder(out))
    return RunFolder(out).result()["seconds"]
