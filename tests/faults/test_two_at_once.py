"""Two processes that start at the same moment on one run folder, cache, answers file or sweep are never mixed up.

The second one waits, or is refused with the name of the first. Both stand at a barrier before every try.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from faults.conftest import Tally
from helpers import asking, toys
from helpers.engines import InProcess
from helpers.faults import PROCESSES, SECONDS, assert_clean, assert_whole
from helpers.runs import assert_same_run, run, toy, write_settings
from sitar.analysis.answers import AnswersFile, read_answers
from sitar.analysis.ask.session import Session
from sitar.errors import SitarError
from sitar.images.cache import cached_images
from sitar.images.files import Files
from sitar.interpreter import module_environment
from sitar.run_folder import RunFolder
from sitar.sweeps import sweep as sweeps

FEW, MANY = 10, 200
QUESTIONS = 12


def _train(place: Path, number: int) -> None:
    """Each process has a seed of its own, so that a mixture would show."""
    run(toy("erm", train={"epochs": 2}, seed=number), place / "run")


def _resume(place: Path, number: int) -> None:
    run(toy("erm", train={"epochs": 2}), place / "run", resume=True)


def _decode(place: Path, number: int) -> None:
    os.environ["SITAR_CACHE"] = str(place / "cache")
    names = [path.name for path in sorted((place.parent / "images").iterdir())]
    cached = cached_images("two", names, Files([place.parent / "images"]), (8, 8), workers=1)
    assert cached.good.all()
    assert len(cached.images) == len(names)
    assert all(image.any() for image in cached.images), "half a cache was taken for a whole one"


def _ask(place: Path, number: int) -> None:
    pool = asking.pool_of(np.stack([np.zeros(40, int), np.arange(40) % 2]))
    with Session.opened(pool, AnswersFile(place / "answers.csv")) as session:
        while len(session.lines) < QUESTIONS:
            assert session.question is not None
            session.answer(session.question.image, number)


def _sweep(place: Path, number: int) -> None:
    settings = str(place.parent / "settings.yaml")
    over = {"train.learning_rate": [0.1, 0.01]}
    request = sweeps.make_request(settings, over=over, out=place / "sweep", device="cpu")
    sweeps.run(request, InProcess(), progress=False)


def _one_run(place: Path, home: Path) -> None:
    folder = RunFolder(place / "run")
    seed = folder.read_config()["seed"]
    assert folder.result()["seed"] == seed, "the settings of one run and the result of another"
    assert_same_run(folder, RunFolder(home / f"seed{seed}"))


def _one_cache(place: Path, home: Path) -> None:
    (index,) = (place / "cache").glob("*/index.json")
    (whole,) = (home / "undisturbed" / "cache").glob("*/index.json")
    assert index.read_bytes() == whole.read_bytes()
    for name in ("images.npy", "state.npy"):
        assert (index.parent / name).read_bytes() == (whole.parent / name).read_bytes()


def _one_person(place: Path, home: Path) -> None:
    lines = read_answers(place / "answers.csv").lines
    assert len({line.image for line in lines}) == len(lines) == QUESTIONS
    assert len((place / "answers.csv").read_text().splitlines()) == 1 + QUESTIONS
    assert len({line.answer for line in lines}) == 1, "answers of two sessions"


def _one_sweep(place: Path, home: Path) -> None:
    record = json.loads((place / "sweep" / "sweep.json").read_text())
    assert not record["failed"]
    assert len(record["points"]) == 2
    assert len(list((place / "sweep").glob("*/seed0/done"))) == 2


class Together(NamedTuple):
    """What both processes do, what must hold afterwards, and whether both may succeed."""

    do: Callable[[Path, int], None]
    check: Callable[[Path, Path], None]
    refuses: bool


KINDS = {
    "run folder": Together(_train, _one_run, True),
    "run folder, resumed": Together(_resume, _one_run, False),
    "cache": Together(_decode, _one_cache, False),
    "answers": Together(_ask, _one_person, False),
    "sweep": Together(_sweep, _one_sweep, False),
}


def _tries(kind: str, home: str, tries: int, number: int, barrier: Any, reports: Any) -> None:
    """Try again and again, each time at the same moment as the other process."""
    logging.disable(logging.WARNING)
    with toys.entered():
        for i in range(tries):
            place = Path(home, f"try{i}")
            place.mkdir(exist_ok=True)
            barrier.wait(SECONDS)
            try:
                KINDS[kind].do(place, number)
                said = None
            except SitarError as error:
                said = str(error)
            except Exception as error:  # which is no name of the other process, and fails the test
                said = f"{type(error).__name__}: {error}"
            reports.put((i, os.getpid(), said))


def _prepare(kind: str, home: Path) -> None:
    if kind.startswith("run folder"):
        with toys.entered():
            for seed in (0, 1):
                run(toy("erm", train={"epochs": 2}, seed=seed), home / f"seed{seed}")
    if kind == "sweep":
        with toys.entered():
            write_settings(toy("erm", train={"epochs": 2}), home / "settings.yaml")
    if kind == "cache":
        asking.save_images(home / "images", 80, size=10)
        (home / "undisturbed").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SITAR_CACHE", "")
            _decode(home / "undisturbed", 0)


def together(kind: str, home: Path, tries: int) -> int:
    """Let two processes meet so often. Return how often one was refused."""
    _prepare(kind, home)
    barrier, reports = PROCESSES.Barrier(2), PROCESSES.Queue()
    both = [
        PROCESSES.Process(target=_tries, args=(kind, str(home), tries, number, barrier, reports)) for number in (0, 1)
    ]
    for process in both:
        process.start()
    pids = [process.pid for process in both]
    found: dict[int, list[tuple[int, str | None]]] = {}
    for _ in range(2 * tries):
        i, pid, said = reports.get(timeout=SECONDS)
        found.setdefault(i, []).append((pid, said))
    for process in both:
        process.join(SECONDS)
        assert process.exitcode == 0
    refused = 0
    for i, ends in found.items():
        assert any(said is None for _, said in ends), f"try {i}: both were refused: {ends}"
        for pid, said in ends:
            (other,) = set(pids) - {pid}
            if said is not None:
                refused += 1
                named = (f"Process {other} ", "is already used")  # or the other one had finished
                assert any(word in said for word in named), f"try {i}: {said}"
        if KINDS[kind].refuses:
            assert sum(said is None for _, said in ends) == 1, f"try {i}: both have trained"
        assert_whole(home / f"try{i}")
        with toys.entered():
            KINDS[kind].check(home / f"try{i}", home)
        assert_clean(home / f"try{i}")
    return refused


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_at_once(kind: str, tmp_path: Path, tally: Tally) -> None:
    tally("two_at_once", kind, tries=FEW, refused=together(kind, tmp_path, FEW))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_at_once_often(kind: str, tmp_path: Path, tally: Tally) -> None:
    for part in range(MANY // FEW):
        (tmp_path / str(part)).mkdir()
        tally("two_at_once", kind, tries=FEW, refused=together(kind, tmp_path / str(part), FEW))


HOLD = {
    "cache": """
from sitar.locks import locked
folder, = (p for p in (place / "cache").iterdir())
lock = locked(folder / "lock", wait=False)
""",
    "answers": """
from sitar.analysis.answers import AnswersFile
lock = AnswersFile(place / "answers.csv").opened()
""",
    "sweep": """
from sitar.sweeps.folder import SweepFolder
lock = SweepFolder(place / "sweep").lock()
""",
    "run folder": """
from sitar.run_folder import RunFolder
lock = RunFolder(place / "run").lock()
""",
}


@pytest.mark.parametrize("kind", HOLD)
def test_who_holds_it_is_named_and_a_dead_owner_holds_nothing(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file of a dead process stays and names it. Its number may be that of another process by now."""
    monkeypatch.setenv("SITAR_CACHE", "")
    place = tmp_path / "place"
    place.mkdir()
    _prepare(kind, tmp_path)
    with toys.entered():
        if kind == "cache":
            _decode(place, 0)
            (made,) = (place / "cache").iterdir()
            (made / "index.json").unlink()
        code = f"import sys; from pathlib import Path; place = Path(sys.argv[1]){HOLD[kind]}"
        code += "lock.__enter__(); print('held', flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", code, str(place)]
        with subprocess.Popen(command, env=module_environment(), stdin=-1, stdout=-1, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            if kind == "cache":
                waiting = PROCESSES.Process(target=_decode, args=(place, 0))
                waiting.start()
                time.sleep(0.5)
                assert waiting.is_alive()
                other.kill()
                waiting.join(SECONDS)
                assert waiting.exitcode == 0
            else:
                with pytest.raises(SitarError, match=f"Process {other.pid} "):
                    KINDS[kind].do(place, 0)
                other.kill()
        (lock,) = [path for path in place.rglob("*lock") if path.is_file()]
        lock.write_text(json.dumps({"process": os.getppid(), "host": socket.gethostname()}))  # a number used again
        KINDS[kind].do(place, 0)
        KINDS[kind].check(place, tmp_path)
