"""Work that tests interrupt: in processes of its own, which are killed, or whose disk is full.

What a piece of work leaves must be the same as if nothing had happened.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from helpers.bad_disks import Fault, SmallDisk
from helpers.works import WORKS, Work
from sitar.errors import SitarError
from sitar.files import read_npz
from sitar.run_folder import RunFolder

PROCESSES = multiprocessing.get_context("forkserver")  # which imports torch once for all of them
PROCESSES.set_forkserver_preload(
    [
        "sitar.training.run", "sitar.methods", "sitar.data", "sitar.cli.main", "sitar.sweeps.sweep",
        "sitar.export.export", "sitar.analysis.refit.refit", "sitar.analysis.explain.explain",
        "sitar.reporting.html.report", "sitar.reporting.card.card", "torch._dynamo", "pyarrow.parquet",
        "sklearn.linear_model", "matplotlib.pyplot", "PIL.PngImagePlugin", "onnx", "psutil", "pytest",
    ]
)  # fmt: skip
MARK = "SITAR_TEST_FAULT"  # in the environment of every process that a piece of work starts
PR_SET_NAME, NAMED = 15, 12  # characters of the mark that are the name of such a process
SECONDS = 300  # after which a process that hangs is a failure; machines may be busy


# A process that does a piece of work, and what happens to it


@dataclass
class Ended:
    """How a piece of work ended: `done`, `refused` with a message, or `killed`."""

    how: str
    said: str = ""
    faults: int = 0
    seconds: float = 0.0


def attempt(
    name: str,
    place: Path,
    *,
    kill_after: float | None = None,
    fault: Fault | None = None,
    limit: int | None = None,
    disk: SmallDisk | None = None,
    meanwhile: Callable[[str], object] = lambda mark: None,
) -> Ended:
    """Do a piece of work in a process of its own, and see that no process is left behind.

    `meanwhile` is called while it works, with the mark of the processes that it starts.
    """
    mark = uuid.uuid4().hex
    here, there = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_work, args=(name, str(place), mark, fault, limit, disk, there))
    process.start()
    there.close()
    assert here.poll(SECONDS), f"{name} did not begin"
    here.recv()
    start = time.monotonic()
    meanwhile(mark)
    process.join(SECONDS if kill_after is None else kill_after)
    if process.is_alive():
        assert kill_after is not None, f"{name} did not end"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    seconds = time.monotonic() - start
    no_orphans(mark)
    try:
        ended = here.recv()
    except EOFError:
        said = place.with_name(f"said-{mark}").read_text(encoding="utf-8", errors="replace")[-2000:]
        assert process.exitcode == -signal.SIGKILL, f"{name} ended with status {process.exitcode}: {said}"
        ended = Ended("killed")
    ended.seconds = seconds
    return ended


def _work(
    name: str, place: str, mark: str, fault: Fault | None, limit: int | None, disk: SmallDisk | None, report: Any
) -> None:
    """What the new process does."""
    os.environ[MARK] = mark
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, mark[:NAMED].encode())  # which processes that it forks have, too
    os.environ["OMP_NUM_THREADS"] = "1"
    with Path(place).with_name(f"said-{mark}").open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    if limit is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if disk is not None:
        disk.enter()
    if fault is not None:
        fault.begin(Path(place), Path(place).with_name(f"changes-{mark}"))
    report.send("begun")
    try:
        WORKS[name].do(Path(place))
        ended = Ended("done")
    except (SitarError, OSError) as error:
        ended = Ended("refused", str(error))
    except SystemExit as error:  # of a script, with its message
        ended = Ended("refused" if isinstance(error.code, str) else "broken", str(error.code))
    except AssertionError as error:  # the exit status of a command, with what it printed
        ended = Ended("refused" if "Error: " in str(error) and "Traceback" not in str(error) else "broken", str(error))
    except BaseException as error:
        ended = Ended("broken", "".join(traceback.format_exception(error))[-2000:])
    if fault is not None:
        fault.end()
        ended.faults = fault.seen
    report.send(ended)


def marked(mark: str) -> list[psutil.Process]:
    """The processes that have this mark, in their environment or in their name."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(MARK) == mark or process.name() == mark[:NAMED]
            ) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def no_orphans(mark: str, seconds: float = 60) -> None:
    """Wait until all processes with this mark have ended by themselves. They have seconds, on a busy machine."""
    end = time.monotonic() + seconds
    while left := marked(mark):
        if time.monotonic() > end:
            names = [" ".join(one.cmdline()) for one in left]
            for one in left:
                one.kill()
            raise AssertionError(f"processes run on without the one that started them: {names}")
        time.sleep(0.02)


# What must hold afterwards

UNFINISHED = re.compile(r"\.[0-9a-f]{8}\.new$|\.part$|\.tmp$")


def assert_whole(place: Path) -> None:
    """Every file under its own name can be read. Arrays of a cache count once index.json vouches for them."""
    for path in place.rglob("*"):
        if not path.is_file() or UNFINISHED.search(str(path)) or any(UNFINISHED.search(p.name) for p in path.parents):
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"))
            elif path.suffix == ".yaml":
                assert yaml.safe_load(path.read_text(encoding="utf-8"))
            elif path.suffix == ".npz":
                assert read_npz(path)
            elif path.suffix == ".safetensors":
                import safetensors.numpy

                assert safetensors.numpy.load(path.read_bytes())
            elif path.name == "state.pt":
                from sitar.training.checkpoint import load_state

                assert load_state(RunFolder(path.parents[1]), path.read_bytes())
        except (ValueError, AssertionError, SitarError) as error:
            raise AssertionError(f"half of {path} is there under its own name: {error}") from error


def assert_clean(place: Path) -> None:
    """Nothing is left of what was begun and not ended."""
    left = [str(path.relative_to(place)) for path in place.rglob("*") if UNFINISHED.search(path.name)]
    assert not left, f"left behind for ever: {left}"


@dataclass
class Kills:
    """Kills a piece of work at random moments, again and again, until it has been killed often enough."""

    work: Work
    home: Path
    seed: int
    kills: int = 0
    whole: int = 0  # pieces that were brought to their end and compared
    outcome: Any = None
    seconds: float = 0.0

    def begin(self) -> None:
        """Do the work once, undisturbed."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.work.prepare(self.home)
        ended = attempt(self.work.name, self._place())
        assert ended.how == "done", ended.said
        self.outcome, self.seconds = self.work.outcome(self._place()), ended.seconds
        assert_clean(self._place())
        self.whole = 1

    def go_on(self, kills: int) -> None:
        """Kill it so often, and compare what is left in the end."""
        moments = random.Random(self.seed)
        for _ in range(kills):
            while True:
                delay, is_new = moments.uniform(0, 1.05 * self.seconds), not self._place().exists()
                ended = attempt(self.work.name, self._place(), kill_after=delay)
                assert ended.how in ("killed", "done"), f"kill {self.kills}, seed {self.seed}: {ended.said}"
                if ended.how == "killed":
                    break
                if is_new:
                    self.seconds = ended.seconds  # what it takes on a machine that is as busy as it is now
                self._compare()
            self.kills += 1
            assert_whole(self._place())
        ended = attempt(self.work.name, self._place())
        assert ended.how == "done", ended.said
        self._compare()

    def _place(self) -> Path:
        return self.home / f"place{self.whole}"

    def _compare(self) -> None:
        place = self._place()
        assert_same(self.work.outcome(place), self.outcome, f"after kill {self.kills} of seed {self.seed}")
        assert_clean(place)
        self.whole += 1


def assert_same(ours: Any, theirs: Any, when: str) -> None:
    """Compare outcomes without printing megabytes."""
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        for one, two in zip(ours, theirs, strict=True):
            assert_same(one, two, when)
    elif isinstance(ours, dict) and isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), when
        for key in ours:
            assert_same(ours[key], theirs[key], f"{when}: {key}")
    else:
        assert type(ours) is type(theirs), when
        if ours != theirs:
            raise AssertionError(f"{when}: {str(ours)[:300]} is not {str(theirs)[:300]}")
