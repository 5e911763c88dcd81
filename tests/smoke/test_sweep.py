"""`sitar sweep` as a user has it: in processes of its own, killed and continued, on this machine and on Ray."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.cli import sitar, sitar_error
from helpers.scripts import ROOT
from sitar.errors import ConfigError
from sitar.interpreter import module_command, module_environment
from sitar.sweeps.engines import ray as engine
from sitar.sweeps.engines.job import Job
from sitar.sweeps.folder import SweepFolder

EPOCHS, RUNS = 30, 4
TINY = ["data.train_size=200", "data.eval_size=100", "data.image_size=14", "model.channels=[4]", "model.hidden=8"]
TINY += [f"train.epochs={EPOCHS}", "train.batch_size=16", "train.checkpoint_seconds=0"]
SETTINGS = [word for setting in TINY for word in ("--set", setting)]
COMMAND = ["sweep", "color_mnist/sitar", "--over", "method.alpha=0,0.5", "--seeds", "0-1", *SETTINGS, "--device", "cpu"]


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = module_command("sitar", *COMMAND, "--out", str(folder), *more)
    return subprocess.Popen(command, env=module_environment(), stdout=-1, stderr=subprocess.PIPE, text=True)


def result(folder: Path) -> dict[str, Any]:
    """What the sweep has measured, without how long it took."""
    record = SweepFolder(folder).record()
    for point in record["points"]:
        del point["seconds"]
    return record


def epochs_done(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("*/seed*/metrics.jsonl"))


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.01)
    return found


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return out, err


def below(process: subprocess.Popen[str], words: str) -> list[psutil.Process]:
    """Return the processes below this one whose command has these words."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if words in " ".join(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(start(folder, "--workers", "2"))
    return folder


@pytest.mark.ci
@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_a_sweep_that_is_killed_three_times_ends_in_the_same_table(undisturbed: Path, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print("killed at the moments of seed", seed)  # which pytest shows if this fails
    moments = sorted(random.Random(seed).sample(range(1, RUNS * EPOCHS - 2), 3))
    for moment, victim in zip(moments, ("sweep", "worker", "sweep"), strict=True):
        process = start(tmp_path, "--workers", "2")
        wait_for(lambda moment=moment: epochs_done(tmp_path) >= moment, process)
        workers = below(process, "sitar.sweeps.engines.worker")
        if victim == "worker":
            busy = [worker for worker in workers if worker.is_running()]
            busy[0].send_signal(signal.SIGKILL)
            wait_for(lambda moment=moment: epochs_done(tmp_path) > moment, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        psutil.wait_procs(workers, timeout=20)
        assert not any(worker.is_running() for worker in workers), "a run goes on without its sweep"
    out, _ = finish(start(tmp_path, "--workers", "2"))
    assert result(tmp_path) == result(undisturbed)
    assert "chosen" in out
    for file in undisturbed.glob("*/seed*/checkpoint/model.safetensors"):
        assert (tmp_path / file.relative_to(undisturbed)).read_bytes() == file.read_bytes()


@pytest.mark.ci
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal of POSIX")
def test_a_second_sweep_is_refused_and_ctrl_c_ends_everything_that_the_first_has_started(tmp_path: Path) -> None:
    process = start(tmp_path, "--workers", "2")
    wait_for(lambda: epochs_done(tmp_path) >= 2, process)
    assert f"Process {process.pid} works on the sweep" in sitar_error(*COMMAND, "--out", tmp_path)
    workers = below(process, "sitar.sweeps.engines.worker")
    assert workers
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopped. The same command continues" in err
    assert "Traceback" not in out + err
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.ray
@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_a_process_of_a_ray_cluster_is_killed_and_nothing_is_lost(undisturbed: Path, tmp_path: Path) -> None:
    process = start(tmp_path, "--engine", "ray", "--resources", "cpu=1")
    wait_for(lambda: epochs_done(tmp_path) >= 10, process)
    victim = wait_for(lambda: below(process, "ray::_attempt"), process)[0]
    victim.send_signal(signal.SIGKILL)
    cluster = below(process, "")
    out, _ = finish(process)
    assert "chosen" in out
    assert result(tmp_path) == result(undisturbed)
    for file in undisturbed.glob("*/seed*/checkpoint/model.safetensors"):
        assert (tmp_path / file.relative_to(undisturbed)).read_bytes() == file.read_bytes()
    environments = [json.loads(file.read_text()) for file in tmp_path.glob("*/seed*/environment.json")]
    assert len(environments) == RUNS
    assert any(environment.get("resumed") for environment in environments), "the run was made anew, not continued"
    psutil.wait_procs(cluster, timeout=20)
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in cluster)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray cluster that somebody else has started. It asks for a token, and says that it has a GPU."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
    command += ["--node-ip-address=127.0.0.1", "--num-cpus=2", "--num-gpus=1", "--include-dashboard=false"]
    log = tmp_path / "cluster.log"
    with log.open("w") as file:
        environment = {**module_environment(), "PYTHONUNBUFFERED": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: "Ray runtime started" in log.read_text(), process)
        yield f"127.0.0.1:{port}"
    finally:  # as `ray stop` does, which would also end the clusters of others
        started = [process, *below(process, "")] if process.poll() is None else []
        process.terminate()
        process.wait(timeout=60)
        for one in started[1:]:
            if one.is_running():
                one.kill()


@pytest.mark.ray
@pytest.mark.skipif(sys.platform == "win32", reason="paths of POSIX")
def test_runs_on_a_cluster_that_is_there_share_its_gpu(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do, seen = engine._attempt, tmp_path / "seen"
    seen.mkdir()

    def watched(values: dict[str, Any], folder: str) -> str | None:
        """Note what Ray has given to a job, in its process, and do it."""
        import ray

        given = ray.get_runtime_context().get_assigned_resources()
        (seen / f"{os.getpid()}-{time.time_ns()}.json").write_text(json.dumps(given))
        return do(values, folder)

    monkeypatch.setattr(engine, "_attempt", watched)
    short = (*TINY[:-3], "train.epochs=2", "train.batch_size=16")
    jobs = [Job(str(tmp_path / f"seed{seed}"), "color_mnist/sitar", seed, short, "cpu") for seed in (0, 1)]
    with engine.RayEngine(cluster, {"gpu": 0.5}, device="cpu") as half:
        ended = [one for one in half.run(jobs) if one is not None]
        assert half.room() == 2, "two runs fit onto one GPU"
    assert sorted((one.job.seed, one.error) for one in ended) == [(0, None), (1, None)]
    assert all((tmp_path / f"seed{seed}" / "result.json").is_file() for seed in (0, 1))
    given = [json.loads(file.read_text()) for file in seen.iterdir()]
    assert [(one["CPU"], one["GPU"]) for one in given] == [(1, 0.5)] * 2
    with engine.RayEngine(cluster, {"gpu": 1.5}) as more, pytest.raises(ConfigError, match=r"gpu=1.5, .* has 1 in all"):
        more.room()


@pytest.mark.ray
def test_a_run_that_no_cluster_has_room_for_is_refused(tmp_path: Path) -> None:
    process = start(tmp_path, "--engine", "ray", "--resources", "gpu=99")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2, err
    assert "A run needs gpu=99, and the cluster has" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_cluster_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    message = sitar_error(*COMMAND, "--out", tmp_path, "--engine", "ray", "--address", "127.0.0.1:1")
    assert "There is no Ray cluster at '127.0.0.1:1': " in message


def test_a_dry_run_lists_the_runs_and_makes_none(tmp_path: Path) -> None:
    out = sitar(*COMMAND, "--out", tmp_path / "out", "--dry-run").stdout
    assert [line.split()[0].removeprefix(f"{tmp_path / 'out'}{os.sep}") for line in out.splitlines()[:-1]] == [
        os.path.join(f"method.alpha={alpha}", f"seed{seed}") for seed in (0, 1) for alpha in ("0", "0.5")
    ]
    assert out.splitlines()[-1] == "4 runs, 4 to do. Chosen by val_average."
    listed = json.loads(sitar(*COMMAND, "--out", tmp_path / "out", "--dry-run", "--json").stdout)
    assert [run["state"] for run in listed["runs"]] == ["new"] * 4
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--select", "test_average"], "reads test, and a setting that is chosen there cannot be judged there"),
        (["--over", "method.beta=1..4"], "add --search optuna"),
        (["--resources", "gpu"], "--resources 'gpu' is not of the form"),
        (["--resources", "gpu=-1"], "--resources 'gpu=-1' is not of the form"),
        (["--resources", "gpu=1"], "are for --engine ray"),
        (["--engine", "slurm"], "There is no engine 'slurm'"),
        (["--set", "train.selection=val_worst_group"], "chooses the epoch of each run by groups"),
        (["--over", "method.alpha=1"], "is given twice"),
    ],
)
def test_what_cannot_be_run_is_one_message(words: list[str], says: str, tmp_path: Path) -> None:
    assert says in sitar_error(*COMMAND, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("package", "words"), [("ray", ["--engine", "ray"]), ("optuna", ["--search", "optuna"])])
def test_a_package_that_is_missing_is_named_with_its_extra(
    package: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = sitar_error(*COMMAND, "--out", tmp_path, *words)
    assert f'pip install "sitar[{package}]"' in message


def test_ci_runs_the_sweep_on_ray() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install --quiet --group ray" in text
    assert "pytest -q -m ray" in text
