"""Work that is killed at random moments goes on where it was, and ends as if nothing had happened.

After every kill: no file under its own name is half a file, and no process runs on. In the end: the outcome is that of
undisturbed work to the bit, and nothing that was begun lies about.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from faults.conftest import Tally
from helpers.faults import SECONDS, Kills, assert_clean, assert_same, assert_whole, attempt, marked
from helpers.works import WORKS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

FEW, MANY = 5, 50
IN_CI = ("train", "decode", "shards", "features", "predict", "ask", "sweep", "reproduce")


def killed(name: str, home: Path, kills: int) -> Kills:
    work = Kills(WORKS[name], home, seed=random.randrange(10**6))
    print("killed at the moments of seed", work.seed)  # which pytest shows if this fails
    work.begin()
    work.go_on(kills)
    assert work.kills == kills
    return work


@pytest.mark.ci
@pytest.mark.parametrize("name", IN_CI)
def test_work_that_is_killed_goes_on(name: str, tmp_path: Path, tally: Tally) -> None:
    work = killed(name, tmp_path, 3)
    tally("kills", name, tries=3, compared=work.whole - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_work_that_is_killed_often_goes_on(name: str, tmp_path: Path, tally: Tally) -> None:
    work = killed(name, tmp_path, 0)
    while work.kills < MANY:
        before = work.whole
        work.go_on(FEW)
        tally("kills", name, tries=FEW, compared=work.whole - before)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["decode", "predict"])
def test_a_killed_decoder_is_said_and_the_same_command_goes_on(name: str, tmp_path: Path) -> None:
    work = WORKS[name]
    work.prepare(tmp_path)
    assert attempt(name, tmp_path / "whole").how == "done"

    def kill_one(mark: str) -> None:
        end = time.monotonic() + SECONDS
        while not (found := [one for one in marked(mark) if "sitar.images.worker" in one.cmdline()]):
            assert time.monotonic() < end, "no process decodes"
        found[0].kill()

    ended = attempt(name, tmp_path / "killed", meanwhile=kill_one)
    assert ended.how == "refused", ended
    assert "A process that decodes images has died" in ended.said
    assert_whole(tmp_path / "killed")
    assert attempt(name, tmp_path / "killed").how == "done"
    assert_same(work.outcome(tmp_path / "killed"), work.outcome(tmp_path / "whole"), "after a kill")
    assert_clean(tmp_path / "killed")
