"""The local engine with real processes: order, failures, lost processes, and that nothing is left behind.

A job here does what its preset says, as Python, in the place of training. So a process needs no torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sitar.interpreter import module_environment
from sitar.sweeps.engines.job import Ended, Job
from sitar.sweeps.engines.local import LocalEngine, _Ahead, default_threads, default_workers, visible_gpus

WORK = """
import json, os, time
from pathlib import Path
from sitar.sweeps.engines import job

def perform(one):
    folder = Path(one.folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    (folder / f"{time.monotonic_ns()}.json").write_text(
        json.dumps({"process": os.getpid(), **{name: os.environ.get(name) for name in names}}))
    print("said in", folder.name)
    exec(one.preset)

job.perform = perform
"""
KILL_ONCE = "import os, signal\nif len(list(folder.iterdir())) == 1: os.kill(os.getpid(), signal.SIGKILL)"
KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[LocalEngine]]:
    """The real engine, whose processes replace `perform` by what a job's preset says, as Python."""
    (tmp_path / "sitecustomize.py").write_text(WORK, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return LocalEngine


def job(folder: Path, code: str = "pass", log: Path | None = None) -> Job:
    return Job(str(folder), code, 0, log=None if log is None else str(log))


def attempts(folder: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def ended(engine: LocalEngine, jobs: list[Job]) -> list[Ended]:
    with engine:
        return [one for one in engine.run(iter(jobs)) if one is not None]


def test_jobs_are_done_by_few_processes_that_are_kept(engine: type[LocalEngine], tmp_path: Path) -> None:
    jobs = [job(tmp_path / f"job{i}") for i in range(6)]
    found = ended(engine(2), jobs)
    assert sorted(one.job.folder for one in found) == [one.folder for one in jobs]
    assert [one.error for one in found] == [None] * 6
    processes = {attempt["process"] for one in jobs for attempt in attempts(Path(one.folder))}
    assert len(processes) <= 2
    assert os.getpid() not in processes
    assert not any(psutil.pid_exists(process) for process in processes)


def test_a_job_is_taken_only_when_there_is_room(engine: type[LocalEngine], tmp_path: Path) -> None:
    taken = []

    def jobs() -> Iterator[Job]:
        for i in range(4):
            taken.append(i)
            yield job(tmp_path / f"job{i}")

    with engine(1) as one:
        running = one.run(jobs())
        while next(running) is None:
            assert taken == [0]
        rest = [found for found in running if found is not None]
    assert len(rest) == 3


def test_a_job_that_fails_stops_no_other_and_leaves_its_log(engine: type[LocalEngine], tmp_path: Path) -> None:
    jobs = [
        job(
            tmp_path / "a",
            "from sitar.errors import DataError; raise DataError('no such file')",
            tmp_path / "logs/a.txt",
        ),
        job(tmp_path / "b", "1 / 0", tmp_path / "logs/b.txt"),
        job(tmp_path / "c", log=tmp_path / "logs/c.txt"),
    ]
    errors = {Path(one.job.folder).name: one.error for one in ended(engine(1), jobs)}
    assert errors == {"a": "no such file", "b": "ZeroDivisionError: division by zero", "c": None}
    assert (tmp_path / "logs/a.txt").read_text() == "said in a\nError: no such file\n"
    assert "Traceback" in (tmp_path / "logs/b.txt").read_text()
    assert (tmp_path / "logs/c.txt").read_text() == "said in c\n"


def test_jobs_that_differ_in_the_seed_alone_are_handed_over_together(tmp_path: Path) -> None:
    """Only those that follow each other, and no more than asked for. The engine looks one job ahead."""
    jobs = [
        Job(f"{preset}{seed}", preset, seed)
        for preset, seeds in (("a", 5), ("b", 1), ("c", 2))
        for seed in range(seeds)
    ]
    ahead, found = _Ahead(iter(jobs)), []
    while given := ahead.alike(3):
        found.append([one.folder for one in given])
    assert found == [["a0", "a1", "a2"], ["a3", "a4"], ["b0"], ["c0", "c1"]]


@pytest.mark.ci
def test_seeds_are_trained_together_in_a_process(tmp_path: Path) -> None:
    """Real runs: one that cannot be trained says so, and the logs name the one that has it all."""
    tiny = ("data.train_size=80", "data.eval_size=40", "data.image_size=14", "model.channels=[4]", "train.epochs=1")
    jobs = [
        Job(str(tmp_path / f"seed{seed}"), "color_mnist/erm", seed, tiny, "cpu", log=str(tmp_path / f"{seed}.txt"))
        for seed in range(3)
    ]
    (tmp_path / "seed1").mkdir()
    (tmp_path / "seed1" / "mine.txt").write_text("mine")
    errors = {Path(one.job.folder).name: one.error for one in ended(LocalEngine(1, 1, together=3), jobs)}
    assert errors["seed0"] is None
    assert "already used" in str(errors["seed1"])
    assert errors["seed2"] is None
    assert "seeds are trained" in (tmp_path / "0.txt").read_text()
    (tmp_path / "seed1" / "mine.txt").unlink()
    assert [one.error for one in ended(LocalEngine(1, 1, together=3), jobs)] == [None] * 3
    assert all((tmp_path / f"seed{seed}" / "done").exists() for seed in range(3))
    assert "together with seed 0" in (tmp_path / "2.txt").read_text()


@posix
def test_a_process_that_is_killed_is_replaced_and_its_job_done_again(engine: type[LocalEngine], tmp_path: Path) -> None:
    found = ended(engine(2), [job(tmp_path / "a", KILL_ONCE), job(tmp_path / "b"), job(tmp_path / "c")])
    assert {one.error for one in found} == {None}
    assert len(found) == 3
    assert [len(attempts(tmp_path / name)) for name in "abc"] == [2, 1, 1]


@posix
def test_a_job_that_kills_every_process_fails_in_the_end(engine: type[LocalEngine], tmp_path: Path) -> None:
    errors = {
        Path(one.job.folder).name: one.error
        for one in ended(engine(1), [job(tmp_path / "a", KILL), job(tmp_path / "b")])
    }
    assert errors["b"] is None
    assert errors["a"].startswith(
        "Its process ended 3 times: it was killed, perhaps because the machine has too little"
    )
    assert len(attempts(tmp_path / "a")) == 3


def test_threads_are_limited_and_gpus_given_in_turn(engine: type[LocalEngine], tmp_path: Path) -> None:
    slow = "time.sleep(1)"
    ended(engine(3, threads=5, gpus=("2", "7")), [job(tmp_path / f"job{i}", slow) for i in range(3)])
    found = [attempts(tmp_path / f"job{i}")[0] for i in range(3)]
    assert {one["OMP_NUM_THREADS"] for one in found} == {"5"}
    assert sorted(one["CUDA_VISIBLE_DEVICES"] for one in found) == ["2", "2", "7"]


@posix
def test_leaving_the_context_ends_what_runs(engine: type[LocalEngine], tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(100)'])"
    with engine(1) as one:
        running = one.run([job(tmp_path / "a", code)])
        while not attempts(tmp_path / "a"):
            next(running)
        next(running)
        (process,) = attempts(tmp_path / "a")
        below = psutil.Process(process["process"]).children(recursive=True)
    assert not psutil.pid_exists(process["process"])
    psutil.wait_procs(below, timeout=5)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in below)


@posix
@pytest.mark.parametrize("blow", ["SIGKILL", "SIGTERM"])
def test_no_process_outlives_the_one_that_started_it(engine: type[LocalEngine], tmp_path: Path, blow: str) -> None:
    code = f"""
from sitar.sweeps.engines.job import Job
from sitar.sweeps.engines.local import LocalEngine
with LocalEngine(2) as engine:
    for _ in engine.run([Job({str(tmp_path)!r} + f"/job{{i}}", "time.sleep(100)", 0) for i in range(2)]):
        pass
"""
    parent = subprocess.Popen([sys.executable, "-c", code], env=module_environment())
    deadline = time.monotonic() + 60
    while not all(attempts(tmp_path / f"job{i}") for i in range(2)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = [attempts(tmp_path / f"job{i}")[0]["process"] for i in range(2)]
    parent.send_signal(getattr(signal, blow))
    parent.wait()
    while any(psutil.pid_exists(child) for child in children):
        assert time.monotonic() < deadline, "a process goes on without its sweep"
        time.sleep(0.05)


def test_what_is_taken_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sitar.sweeps.engines.local.cores", lambda: 16)
    assert default_workers(()) == 4
    assert default_workers(("0", "1")) == 2
    assert [default_threads(workers) for workers in (1, 4, 5, 32)] == [None, 4, 3, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert default_threads(4) is None
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert visible_gpus("auto") == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-8a")
    assert visible_gpus("cuda") == ["4", "5", "GPU-8a"]
    assert visible_gpus("cuda:1") == visible_gpus("cpu") == []


def test_no_process_is_started_for_which_there_is_no_job(
    engine: type[LocalEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = LocalEngine._start
    monkeypatch.setattr(LocalEngine, "_start", lambda self: started.append(start(self)) or started[-1])
    assert ended(engine(3), []) == []
    assert started == []
    assert len(ended(engine(3), [job(tmp_path / "only")])) == 1
    assert len(started) == 1
