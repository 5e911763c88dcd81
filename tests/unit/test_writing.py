"""A file is replaced whole or not at all, survives a power cut, and leaves nothing behind for ever."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sitar.files import write_atomic
from sitar.interpreter import module_environment
from sitar.writing import replaced, scratch_folder

posix = pytest.mark.skipif(os.name != "posix", reason="locks and signals are those of POSIX")


def test_the_new_file_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a [1]*.json"
    write_atomic(path, b"old")
    with replaced(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == [path.name]


def test_an_error_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"old")
    with pytest.raises(ZeroDivisionError), replaced(path) as file:
        file.write(b"half" * file.write(b"half") * (1 // 0))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a.json": b"old"}


@posix
def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that a power cut asks for: sync the file, rename it, sync the folder."""
    order: list[tuple[str, int]] = []

    def fsync(handle: int) -> None:
        order.append(("sync", os.fstat(handle).st_ino))

    def replace(source: str, target: Path, replace: Any = os.replace) -> None:
        order.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_atomic(tmp_path / "a.json", b"new")
    file, folder = (tmp_path / "a.json").stat().st_ino, tmp_path.stat().st_ino
    assert order == [("sync", file), ("rename", file), ("sync", folder)]


@posix
def test_a_file_system_that_cannot_sync_folders_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, folder = os.fsync, tmp_path.stat().st_ino

    def fsync(handle: int, number: int = errno.EINVAL) -> None:
        if os.fstat(handle).st_ino == folder:
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomic(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    monkeypatch.setattr(os, "fsync", lambda handle: fsync(handle, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        write_atomic(tmp_path / "a.json", b"newer")


@posix
def test_the_mode_is_that_of_the_user(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(tmp_path / "mine", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600


HOLD = """
import sys
from pathlib import Path
from sitar.writing import replaced, scratch_folder
where = Path(sys.argv[1])
with replaced(where / "a.json") as file, scratch_folder(where, "window") as folder:
    file.write(b"half"); file.flush()
    (folder / "images.npy").write_bytes(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""


@posix
def test_what_a_killed_process_leaves_is_removed_and_what_a_living_one_holds_is_not(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], env=module_environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    mine = {".a.json.original", ".a.json.12345678.neu", "window.of a user.new"}  # files of the user, of like names
    for name in mine:
        (tmp_path / name).touch()
    held = set(os.listdir(tmp_path)) - mine
    assert len(held) == 2
    write_atomic(tmp_path / "a.json", b"new")
    with scratch_folder(tmp_path, "window"):
        assert held < set(os.listdir(tmp_path))
    assert set(os.listdir(tmp_path)) == {*held, *mine, "a.json"}
    process.send_signal(signal.SIGKILL)
    process.communicate()
    write_atomic(tmp_path / "b.json", b"of another name")
    assert set(os.listdir(tmp_path)) == {*held, *mine, "a.json", "b.json"}
    write_atomic(tmp_path / "a.json", b"newer")
    with scratch_folder(tmp_path, "window"):
        pass
    assert set(os.listdir(tmp_path)) == {*mine, "a.json", "b.json"}
    assert (tmp_path / "a.json").read_bytes() == b"newer"


def test_many_writers_of_one_file_do_not_remove_each_others(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(100):
                write_atomic(tmp_path / "a.json", bytes([number]) * 50)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set((tmp_path / "a.json").read_bytes())) == 1
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_scratch_folder_ends_with_its_use(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch_folder(tmp_path, "window") as folder:
        (folder / "deep").mkdir(1 // 0)
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
def test_a_pipe_that_is_called_like_a_begun_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".a.json.0a1b2c3d.new")
    write_atomic(tmp_path / "a.json", b"{}")
    assert (tmp_path / "a.json").read_bytes() == b"{}"
