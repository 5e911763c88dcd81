"""A lock keeps others out, names its owner, and does not outlive it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sitar import locks
from sitar.locks import LockedError, locked, owner_of

HOLD = """
import sys
from pathlib import Path
from sitar.locks import locked
with locked(Path(sys.argv[1]), wait=False):
    print("locked", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is told to let go, or killed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield other
        other.kill()


def test_a_second_process_is_told_which_one_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as other:
        with pytest.raises(LockedError) as error, locked(path, wait=False):
            pass
        assert error.value.owner == f"Process {other.pid}"


def test_a_lock_does_not_outlive_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as other:
        other.kill()
        other.wait()
        with locked(path, wait=False):
            assert owner_of(path) == f"Process {os.getpid()}", "the name of the dead one is replaced"


def test_a_process_that_has_ended_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "NAMING", 0.05)
    path = tmp_path / "lock"
    with holder(path) as other:
        other.kill()
        other.wait()
    assert json.loads(path.read_text())["process"] == other.pid, "its name is still there"
    assert owner_of(path) == "Another process"
    for content in ("", "no JSON", "[]", '{"process": "x"}', '{"process": 1}', "\udc80"):
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        assert owner_of(path) == "Another process"


def test_an_owner_on_another_machine_is_named_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(json.dumps({"process": 2**22 + 1, "host": f"not-{socket.gethostname()}"}))
    assert owner_of(path) == f"Process {2**22 + 1} on not-{socket.gethostname()}"


def test_who_waits_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    path = tmp_path / "lock"
    with holder(path) as other:
        assert other.stdin is not None
        timer = threading.Timer(0.5, lambda: (other.stdin.write("\n"), other.stdin.flush()))  # type: ignore[union-attr]
        timer.start()
        with locked(path, wait=True):
            assert other.wait(5) == 0
        timer.join()
    assert [record.getMessage() for record in caplog.records] == [
        f"Process {other.pid} works on {str(tmp_path)!r}. Waiting until it is done."
    ]


@pytest.mark.skipif(not hasattr(os, "link"), reason="needs hard links")
def test_a_lock_that_is_another_name_of_a_file_does_not_change_it(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("all that I have")
    os.link(tmp_path / "mine", tmp_path / ".lock")
    with locked(tmp_path / ".lock", wait=False):
        pass
    assert (tmp_path / "mine").read_text() == "all that I have"
