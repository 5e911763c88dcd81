"""Exact resume: a run stopped at any moment and continued ends bit-identical to one never stopped, or says why not."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import sitar
import sitar.training.run
from helpers import toys
from helpers.runs import (
    FULL,
    TINY_TRAIN,
    Stop,
    assert_close_runs,
    assert_same_run,
    hashes,
    metrics,
    run,
    settings,
    toy,
    weights,
    write_settings,
    writes,
)
from sitar.config import RunConfig
from sitar.errors import RunError
from sitar.run_folder import RunFolder
from sitar.training.checkpoint import load_state
from sitar.training.step import EagerStep

pytestmark = pytest.mark.usefixtures("_toys")

EPOCHS = 10
RISE_AND_FALL = [[5, 1, 1, 1], [9, 2, 2, 2], [20, 5, 5, 5], [9, 9, 2, 2], [8, 2, 2, 2], *[[30, 10, 10, 10]] * 5]

PROCESSES = multiprocessing.get_context("forkserver")  # which imports torch once for all of them
PROCESSES.set_forkserver_preload(["sitar.training.run", "sitar.methods", "sitar.data"])


def lines(path: Path) -> int:
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def end(file: Path, out: Path, when: Callable[[Path], bool], delay: float, sign: signal.Signals) -> int:
    """Train in another process and end it `delay` seconds after `when` holds; its exit status."""
    process = PROCESSES.Process(target=toys.train_here, args=(str(file), str(out)))
    process.start()
    deadline = time.monotonic() + 120
    while process.is_alive() and not when(out) and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(delay)
    if process.is_alive():
        assert process.pid is not None
        os.kill(process.pid, sign)
    process.join()
    assert process.exitcode is not None
    assert process.exitcode != 0 or RunFolder(out).is_done
    assert process.exitcode in (0, -sign) or sign == signal.SIGINT
    return process.exitcode


@pytest.fixture(scope="module")
def killed_settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SITAR with all that has a state: an annealed loss, a schedule, a criterion with patience."""
    with toys.entered():
        config = settings("toy_annealed", train={**TINY_TRAIN, "epochs": EPOCHS, **FULL}, noise="direction")
    return write_settings(config, tmp_path_factory.mktemp("settings") / "sitar.yaml")


@pytest.fixture(scope="module")
def never_killed(killed_settings: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("whole") / "run"
    with toys.entered():
        return sitar.train(str(killed_settings), out=out, device="cpu", progress=False)


MOMENTS = {
    "the folder is there": (lambda path: path.exists(), 0.0),
    "the settings are there": (lambda path: (path / "config.yaml").exists(), 0.001),
    "the first epoch": (lambda path: (path / "environment.json").exists(), 0.009),
    "a line, before its checkpoint": (lambda path: lines(path) == 2, 0.0),
    "within epoch 5": (lambda path: lines(path) == 4, 0.013),
    "within epoch 9": (lambda path: lines(path) == 8, 0.029),
    "after the last epoch": (lambda path: lines(path) == EPOCHS, 0.05),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_process_resumes_exactly(
    moment: str, killed_settings: Path, never_killed: RunFolder, tmp_path: Path
) -> None:
    end(killed_settings, tmp_path / "run", *MOMENTS[moment], signal.SIGKILL)
    folder = sitar.train(str(killed_settings), out=tmp_path / "run", device="cpu", resume=True, progress=False)
    assert_same_run(folder, never_killed)


def test_killed_again_and_again(killed_settings: Path, never_killed: RunFolder, tmp_path: Path) -> None:
    """A run that is stopped every other epoch still ends where it should."""
    folder = RunFolder(tmp_path / "run")
    for steps in (7, 11, 2, 13):
        with interrupted_after(steps):
            sitar.train(str(killed_settings), out=folder.path, device="cpu", resume=True, progress=False)
    sitar.train(str(killed_settings), out=folder.path, device="cpu", resume=True, progress=False)
    assert_same_run(folder, never_killed)
    environment = json.loads(folder.environment_file.read_text())
    assert len(environment["resumed"]) == 4


def test_ctrl_c_leaves_a_run_that_resumes(killed_settings: Path, never_killed: RunFolder, tmp_path: Path) -> None:
    status = end(killed_settings, tmp_path / "run", lambda path: lines(path) >= 3, 0.007, signal.SIGINT)
    assert status not in (0, -signal.SIGKILL)
    assert (tmp_path / "run" / "checkpoint" / "state.pt").exists()
    folder = sitar.train(str(killed_settings), out=tmp_path / "run", device="cpu", resume=True, progress=False)
    assert_same_run(folder, never_killed)


@contextmanager
def interrupted_after(steps: int) -> Iterator[None]:
    """Ctrl-C inside training, in the middle of an epoch."""
    step, left = EagerStep.__call__, [steps]

    def call(self: EagerStep, *arguments: Any) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        step(self, *arguments)

    with interrupted_in(EagerStep, "__call__", call):
        yield


@contextmanager
def interrupted_in(owner: Any, name: str, replacement: Callable[..., None]) -> Iterator[None]:
    """What runs inside ends with the KeyboardInterrupt that `replacement` raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, replacement)
        with pytest.raises(KeyboardInterrupt):
            yield


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


EVERYWHERE: dict[str, Callable[[], RunConfig]] = {
    "one phase": lambda: toy("erm"),
    "all that has a state": lambda: toy("toy_annealed", train=FULL, noise="swap"),
    "closed form": lambda: toy("sitar", objective="analytic", noise="direction"),
    "class criterion, sgd": lambda: toy(
        "erm", train={"selection": "val_class_balanced", "optimiser": "sgd", "schedule": "linear", "evaluate_every": 2}
    ),
    "early stop": lambda: toy(
        "toy_script",
        data={"name": "toy_groups"},
        train={"epochs": 10, "batch_size": 15, "selection": "val_average", "patience": 2},
        hits=RISE_AND_FALL,
    ),
    "two objectives": lambda: toy("toy_tally", train={"epochs": 2}, second_slope=2.0),
    "a last layer, selected": lambda: toy("afr", train={"selection": "val_average"}, last_epochs=2),
    "a vae that starts anew": lambda: toy("vae", train={"epochs": 2}, beta=1e4, restarts=2),
    "several phases": lambda: toy("toy_relay", train={"schedule": "cosine"}),
    "several phases, selected": lambda: toy("toy_relay", train={"selection": "val_average", "patience": 3}),
}


def contents(path: Path) -> dict[Path, bytes] | None:
    """What a kill would leave now: every file below a folder, or None where there is no folder."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path): file.read_bytes() for file in files} if path.exists() else None


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_stopped_before_any_write_resumes_exactly(kind: str, tmp_path: Path) -> None:
    """The exhaustive form of the kills above: every state that a folder passes through is one to continue from."""
    config = EVERYWHERE[kind]()
    whole = RunFolder(tmp_path / "whole")
    states: list[dict[Path, bytes] | None] = []
    total = writes(lambda: run(config, whole.path), before=lambda: states.append(contents(whole.path)))
    assert len(states) == total > 15
    wrong = []
    for stop_at, state in enumerate(states):
        path = tmp_path / f"stopped{stop_at}"
        if state is not None:
            path.mkdir()
        for file, content in (state or {}).items():
            (path / file).parent.mkdir(exist_ok=True)
            (path / file).write_bytes(content)
        left, done = list(map(str, state or {})), lines(path)
        try:
            assert_same_run(run(config, path, resume=True), whole)
        except (AssertionError, RunError) as error:
            wrong.append(f"before write {stop_at} of {total} ({done} lines, {left}): {str(error)[:200]}")
    assert not wrong, "\n".join(wrong)


def test_stopped_within_a_fit_resumes_exactly(tmp_path: Path) -> None:
    config = toy("toy_relay")
    whole = run(config, tmp_path / "whole")
    assert weights(whole)["fitted"] == 1
    fit = toys.Relay.fit

    def fit_and_interrupt(self: Any, split: Any) -> None:
        fit(self, split)
        raise KeyboardInterrupt

    with interrupted_in(toys.Relay, "fit", fit_and_interrupt):
        run(config, tmp_path / "stopped")
    assert_same_run(run(config, tmp_path / "stopped", resume=True), whole)


def test_stopped_while_evaluating_resumes_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy("erm")
    whole = run(config, tmp_path / "whole")
    with interrupted_in(sitar.training.run, "evaluate_method", interrupt):
        run(config, tmp_path / "stopped")
    assert len(metrics(RunFolder(tmp_path / "stopped"))) == 3
    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "__call__", interrupt)  # no step may run any more
        assert_same_run(run(config, tmp_path / "stopped", resume=True), whole)


def test_rare_checkpoints_resume_exactly_too(tmp_path: Path) -> None:
    """With a checkpoint after the first epoch only, what was logged since is dropped and done again."""
    config = toy("toy_annealed", train={"checkpoint_seconds": 1000.0, "epochs": 5})
    whole = run(config, tmp_path / "whole")
    with interrupted_after(4 * 4 + 1):
        run(config, tmp_path / "stopped")
    assert lines(tmp_path / "stopped") == 4
    assert_same_run(run(config, tmp_path / "stopped", resume=True), whole)


def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    """A kill in the middle of a write to metrics.jsonl."""
    config = toy("erm")
    whole = run(config, tmp_path / "whole")
    folder = stopped(config, tmp_path / "stopped")
    with folder.metrics_file.open("a") as file:
        file.write('{"phase": "train", "epoch": 3, "lo')
    assert_same_run(run(config, folder.path, resume=True), whole)


def test_patience_counts_across_a_stop(tmp_path: Path) -> None:
    """The criterion was last beaten in epoch 3, so patience 2 ends the run after epoch 5, stopped in between or not."""
    config = EVERYWHERE["early stop"]()
    with interrupted_after(4 * 4 + 2):
        run(config, tmp_path / "stopped")
    assert lines(tmp_path / "stopped") == 4
    folder = run(config, tmp_path / "stopped", resume=True)
    assert [line["epoch"] for line in metrics(folder)] == [1, 2, 3, 4, 5]
    assert folder.result()["selected_epoch"] == 3
    assert weights(folder)["epoch"] == 2  # counted from 0


def stopped(config: RunConfig, path: Path, steps: int = 10) -> RunFolder:
    """A folder as Ctrl-C leaves it after some steps; toy runs have four an epoch."""
    with interrupted_after(steps):
        run(config, path)
    return RunFolder(path)


def test_a_run_of_an_earlier_release_is_continued(tmp_path: Path) -> None:
    """Its config.yaml has settings that were removed since, with the values that they had by default."""
    config = toy("sitar")
    whole = run(config, tmp_path / "whole")
    folder = stopped(config, tmp_path / "run")
    earlier = config.to_dict()
    earlier["model"]["recon_target"], earlier["method"]["beta_start"] = "detached", None
    for made in (whole, folder):
        made.write_config(earlier)
    assert_same_run(run(config, folder.path, resume=True), whole)
    assert yaml.safe_load(folder.config_file.read_text()) == earlier  # what was written stays
    assert folder.read_config() == config.to_dict()


@pytest.mark.parametrize("finished", [False, True])
def test_other_settings_are_refused_by_name(tmp_path: Path, finished: bool) -> None:
    path = tmp_path / "run"
    _ = run(toy("sitar"), path) if finished else stopped(toy("sitar"), path)
    before = hashes(path)
    with pytest.raises(RunError) as error:
        run(toy("sitar", alpha=0.25, train={"learning_rate": 0.5}, seed=3), path, resume=True)
    message = str(error.value)
    for part in ("method.alpha", "0.25", "train.learning_rate", "0.5", "seed", "3", str(path)):
        assert part in message
    assert "beta" not in message  # only what differs
    assert hashes(path) == before


def test_another_method_is_refused(tmp_path: Path) -> None:
    path = stopped(toy("sitar"), tmp_path / "run").path
    before = hashes(path)
    with pytest.raises(RunError, match=r"method\.name: 'erm' asked for, 'sitar' in the folder"):
        run(toy("erm"), path, resume=True)
    assert hashes(path) == before


@pytest.mark.parametrize("content", ["finished", "stopped", "foreign"])
def test_a_used_folder_is_refused_without_resume(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run"
    if content == "finished":
        run(toy("erm"), path)
    elif content == "stopped":
        stopped(toy("erm"), path)
    else:
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    before = hashes(path)
    with pytest.raises(RunError, match="already used"):
        run(toy("erm"), path)
    assert hashes(path) == before


def test_a_foreign_folder_is_refused_with_resume(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    before = hashes(path)
    with pytest.raises(RunError):
        run(toy("erm"), path, resume=True)
    assert hashes(path) == before


def test_a_finished_run_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy("erm")
    folder = run(config, tmp_path / "run")
    before = hashes(folder.path)
    stamps = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}

    def never(*_: Any) -> None:
        raise AssertionError("a finished run needs no data")

    monkeypatch.setattr("sitar.training.run.load_data", never)
    assert run(config, folder.path, resume=True) == folder
    assert hashes(folder.path) == before
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == stamps


class Trap:
    """What a damaged or hostile checkpoint must not be able to do: run code when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (Path.touch, (self.mark,))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "cut at the end": lambda content: content[:-40],
    "not a checkpoint": lambda content: b"something else entirely\n" * 50,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    folder.state_file.write_bytes(DAMAGES[damage](folder.state_file.read_bytes()))
    before = hashes(folder.path)
    with pytest.raises(RunError, match=r"state\.pt"):
        run(toy("erm"), folder.path, resume=True)
    after = hashes(folder.path)
    before.pop("environment.json"), after.pop("environment.json")  # says who tried
    assert after == before


def test_one_flipped_bit_of_a_checkpoint_is_never_used(tmp_path: Path) -> None:
    """A file with a flipped bit is refused, or the bit says nothing and all values are the same."""
    folder = stopped(toy("sitar"), tmp_path / "run")
    content = folder.state_file.read_bytes()
    sound, refused = load_state(folder, content), 0
    bits = np.random.default_rng(0).integers(0, 8 * len(content), 300).tolist()
    for bit in bits:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            state = load_state(folder, bytes(changed))
        except RunError:
            refused += 1
        else:
            assert _same(state, sound), f"bit {bit} has changed a value, and nobody noticed"
    assert refused > 150


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def _doubled(value: Any) -> Any:
    """Containers that take little of a file, and a million steps to walk through."""
    for _ in range(20):
        value = type(value)((value, value))
    return value


def _edit(state: dict[str, Any], change: str) -> None:
    """Change a checkpoint as somebody with torch and a text editor would."""
    progress = state["progress"]
    optimiser = progress["optimisers"][0]
    weights = next(iter(state["method"]))
    average = {name: tensor + 1 for name, tensor in state["method"].items()}
    edits: dict[str, Callable[[], Any]] = {
        "no phase": lambda: state.pop("phase"),
        "a phase of words": lambda: state.update(phase="first"),
        "a phase below 0": lambda: state.update(phase=-1),
        "the phase after the last": lambda: state.update(phase=1),
        "a phase after the last, done": lambda: state.update(phase=1, progress=None),
        "a phase far away": lambda: state.update(phase=10**30),
        "a phase that begins again": lambda: state.update(progress=None),
        "a later epoch": lambda: progress.update(epoch=3),
        "lines of words": lambda: state.update(lines="3"),
        "seconds of words": lambda: state.update(seconds="many"),
        "seconds without end": lambda: state.update(seconds=float("inf")),
        "an average of other weights": lambda: progress.update(average={"seen": 2, "mean": {"x": torch.zeros(2)}}),
        "an average that is not asked for": lambda: progress.update(average={"seen": 2, "mean": average}),
        "tuples that hold others twice": lambda: optimiser.update(x=_doubled(())),
        "lists that hold others twice": lambda: optimiser.update(x=_doubled([])),
        "no optimisers": lambda: progress.update(optimisers=[]),
        "an empty optimiser": lambda: progress.update(optimisers=[{}]),
        "moments of another shape": lambda: optimiser["state"][0].update(exp_avg=torch.zeros(3)),
        "a moment that is a number": lambda: optimiser["state"][1].update(exp_avg_sq=1),
        "a moment without a shape": lambda: optimiser["state"][1].update(exp_avg=torch.zeros(())),
        "no moment": lambda: optimiser["state"][0].pop("exp_avg"),
        "no count of steps": lambda: optimiser["state"][0].pop("step"),
        "moments of words": lambda: optimiser["state"].update({0: "large"}),
        "no best": lambda: progress.pop("best"),
        "a best of words": lambda: progress.update(best="the last"),
        "no such weights": lambda: state["method"].update(other=torch.zeros(2)),
        "weights of another shape": lambda: state["method"].update({weights: torch.zeros(7)}),
        "weights of words": lambda: state["method"].update({weights: "large"}),
        "weights that fill the memory": lambda: state["method"].update({weights: torch.zeros(1).expand(10**12)}),
        "a list": lambda: state.update(method=[]),
    }
    edits[change]()


@pytest.mark.parametrize(
    "change",
    [
        "no phase", "a phase of words", "a phase below 0", "a later epoch", "lines of words", "seconds of words",
        "the phase after the last", "a phase after the last, done", "a phase far away", "a phase that begins again",
        "seconds without end", "an average of other weights", "an average that is not asked for",
        "tuples that hold others twice", "lists that hold others twice",
        "no optimisers", "an empty optimiser", "moments of another shape", "a moment that is a number",
        "a moment without a shape", "no moment", "no count of steps", "moments of words", "no best", "a best of words",
        "no such weights", "weights of another shape", "weights of words", "weights that fill the memory", "a list",
    ],
)  # fmt: skip
def test_an_edited_checkpoint_is_refused(tmp_path: Path, change: str) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    state = torch.load(folder.state_file, weights_only=True)
    _edit(state, change)
    torch.save(state, folder.state_file)
    with pytest.raises(RunError, match=r"state\.pt"):
        run(toy("erm"), folder.path, resume=True)
    assert not folder.is_done


def test_a_compressed_checkpoint_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    packed = io.BytesIO()
    with zipfile.ZipFile(folder.state_file) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    folder.state_file.write_bytes(packed.getvalue())
    with pytest.raises(RunError, match=r"state\.pt.*compressed"):
        run(toy("erm"), folder.path, resume=True)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    torch.save({"phase": 0, "trap": Trap(tmp_path / "trapped")}, folder.state_file)
    with pytest.raises(RunError, match=r"state\.pt"):
        run(toy("erm"), folder.path, resume=True)
    assert not (tmp_path / "trapped").exists()


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("this is not called")


class Filled:
    """What a checkpoint of sitar never holds, and torch allows: bytes that are not in the file."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (bytearray, (2**28,))


def test_a_checkpoint_cannot_ask_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    state = torch.load(folder.state_file, weights_only=True)
    state["progress"]["optimisers"][0]["x"] = Filled()
    torch.save(state, folder.state_file)
    monkeypatch.setattr(torch, "load", never)  # it is refused before
    with pytest.raises(RunError, match=r"state\.pt.*bytearray"):
        run(toy("erm"), folder.path, resume=True)


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    """Torch reads an older format, and what follows it may look like a sound checkpoint."""
    folder = stopped(toy("erm"), tmp_path / "run")
    old = io.BytesIO()
    torch.save(torch.load(folder.state_file, weights_only=True), old, _use_new_zipfile_serialization=False)
    folder.state_file.write_bytes(old.getvalue() + folder.state_file.read_bytes())
    with pytest.raises(RunError, match=r"state\.pt"):
        run(toy("erm"), folder.path, resume=True)


def test_a_checkpoint_with_too_many_values_is_refused(tmp_path: Path) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    state = torch.load(folder.state_file, weights_only=True)
    state["progress"]["optimisers"][0]["x"] = [None] * 2**24
    torch.save(state, folder.state_file)
    with pytest.raises(RunError, match=r"state\.pt.*16,777,216"):
        run(toy("erm"), folder.path, resume=True)


def test_a_checkpoint_that_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    with folder.state_file.open("r+b") as file:
        file.truncate(2**28)  # it has holes, and takes no room on the disk
    monkeypatch.setattr(RunFolder, "state", never)
    with pytest.raises(RunError, match=r"state\.pt.*268,435,456 bytes"):
        run(toy("erm"), folder.path, resume=True)


@pytest.mark.parametrize("change", ["before it", "within it", "after it"])
def test_a_checkpoint_of_another_phase_is_refused(tmp_path: Path, change: str) -> None:
    """The relay trains, trains again, and fits. It is stopped in its second phase."""
    config = toy("toy_relay")
    folder = stopped(config, tmp_path / "run", 15)
    state = torch.load(folder.state_file, weights_only=True)
    assert (state["phase"], state["lines"]) == (1, 3)
    state.update({"before it": {"phase": 0}, "within it": {"progress": None}, "after it": {"phase": 2}}[change])
    torch.save(state, folder.state_file)
    with pytest.raises(RunError, match=r"state\.pt.*phase"):
        run(config, folder.path, resume=True)
    assert not folder.is_done


def test_cut_metrics_are_refused(tmp_path: Path) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    folder.metrics_file.write_text("")
    with pytest.raises(RunError, match=r"metrics\.jsonl"):
        run(toy("erm"), folder.path, resume=True)


def test_changed_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stopped(toy("erm"), tmp_path / "run")
    before = hashes(folder.path)
    monkeypatch.setattr(toys, "CHECKSUM", "other")
    with pytest.raises(RunError, match="data has changed"):
        run(toy("erm"), folder.path, resume=True)
    assert hashes(folder.path) == before


def test_resume_without_a_folder_starts_one(tmp_path: Path) -> None:
    whole = run(toy("erm"), tmp_path / "whole")
    assert_same_run(run(toy("erm"), tmp_path / "deep" / "new", resume=True), whole)
    (tmp_path / "empty").mkdir()
    assert_same_run(run(toy("erm"), tmp_path / "empty", resume=True), whole)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="--out"):
            run(toy("erm"), path)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["all that has a state", "class criterion, sgd", "several phases"])
@pytest.mark.parametrize("step", ["eager", "captured"])
def test_resume_on_a_gpu(kind: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close to the uninterrupted run, the learning rate's schedule after the stop included."""
    config = EVERYWHERE[kind]()
    config = config.model_copy(update={"train": config.train.model_copy(update={"step": step})})
    whole = run(config, tmp_path / "whole", device="cuda")
    for stop_at in range(6, writes(lambda: run(config, tmp_path / "counted", device="cuda")), 5):
        path = tmp_path / f"stopped{stop_at}"
        with pytest.raises(Stop):
            writes(lambda path=path: run(config, path, device="cuda"), stop_at=stop_at)
        folder = run(config, path, resume=True, device="cuda")
        assert_close_runs(folder, whole)
        assert [line["learning_rate"] for line in metrics(folder)] == [line["learning_rate"] for line in metrics(whole)]
