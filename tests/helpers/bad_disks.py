"""Disks that are full or that fail. One is pretended, at any change of any file; one is real, and small.

Nothing here imports sitar or torch: every process that a piece of work starts imports this first.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import io
import json
import os
import shutil
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).parent / "every_process"
DISK = "SITAR_TEST_DISK"  # in the environment: the fault that holds in this process, too
WRITES = set("wxa+")


@dataclass
class Fault:
    """A disk that refuses change number `at` below a folder, and all that follow. `at` None: it only counts.

    A change is a file that is opened for writing, a write, a rename, a new folder, a cut or a sync. It is noticed where
    Python asks the system for it, whoever wrote the code. Processes that are started later have the same disk, and one
    count. `counter` is a file outside of the folder.
    """

    at: int | None
    number: int = errno.ENOSPC
    lasting: bool = True
    root: str = ""
    counter: str = ""

    current: ClassVar[Fault | None] = None
    _thread: ClassVar[threading.local] = threading.local()

    def begin(self, root: Path, counter: Path) -> None:
        """From now on the disk is bad, for this process and those that it starts."""
        self.root, self.counter = os.path.realpath(root), str(counter)
        counter.write_bytes(struct.pack("q", 0))
        os.environ[DISK] = json.dumps(asdict(self))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self._watch()

    @classmethod
    def go_on(cls) -> None:
        """The process that started this one has a bad disk, and so has this one."""
        if (told := os.environ.get(DISK)) is not None:
            cls(**json.loads(told))._watch()

    @property
    def seen(self) -> int:
        """How many changes there were."""
        return struct.unpack("q", Path(self.counter).read_bytes())[0]

    def end(self) -> None:
        """This process has a good disk again."""
        Fault.current = None

    def _watch(self) -> None:
        Fault.current = self
        self.handle = os.open(self.counter, os.O_RDWR)
        sys.addaudithook(_hear)
        fsync, write, opened = os.fsync, os.write, io.open
        os.fsync = lambda handle: (_change_of(handle), fsync(handle))[1]  # type: ignore[assignment]
        os.write = lambda handle, content: (_change_of(handle), write(handle, content))[1]
        builtins.open = io.open = _with_faults(opened)  # type: ignore[assignment]

    def change(self, path: Any) -> None:
        """Count a change of this path, and refuse it if it is its turn."""
        if isinstance(path, int) or getattr(self._thread, "is_busy", False):
            return
        self._thread.is_busy = True
        try:
            inside = os.path.realpath(os.fsdecode(path)).startswith(self.root)
            if not inside or ".lock" in os.fsdecode(path):
                return
            turn = self._count()
        finally:
            self._thread.is_busy = False
        if self.at is not None and (turn == self.at or (self.lasting and turn > self.at)):
            raise OSError(self.number, os.strerror(self.number), os.fsdecode(path))

    def _count(self) -> int:
        """Return how many changes there were before this one, in all processes."""
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        try:
            turn = struct.unpack("q", os.pread(self.handle, 8, 0))[0]
            os.pwrite(self.handle, struct.pack("q", turn + 1), 0)
        finally:
            fcntl.flock(self.handle, fcntl.LOCK_UN)
        return turn


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if Fault.current is None:
        return
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, str | bytes | os.PathLike) and (
            flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(mode or "") & WRITES
        ):
            Fault.current.change(path)
    elif event in ("os.rename", "os.mkdir", "os.truncate"):
        Fault.current.change(arguments[0])


def _change_of(handle: int) -> None:
    if Fault.current is not None:
        Fault.current.change(os.readlink(f"/proc/self/fd/{handle}"))


class _Raw(io.FileIO):
    """A file whose writes are changes."""

    def write(self, content: Any) -> int:
        _change_of(self.fileno())
        return super().write(content)


def _with_faults(opened: Callable[..., Any]) -> Callable[..., Any]:
    """`open`, with writes that can fail."""

    def open(
        file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        if not set(mode) & WRITES or Fault.current is None:
            return opened(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)

    return open


# A disk that is really small


CLONE_NEWNS, CLONE_NEWUSER, MS_REMOUNT, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 32, 16384, 1 << 18


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _must(status: int, what: str) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


class SmallDisk:
    """A file system of a few pages in memory, at a place that only some processes see. It needs Linux.

    A process of its own holds it. Others enter. Nobody needs to be root where the system lets users have namespaces.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        told, tell = os.pipe()
        answered, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(tell), os.close(answered)
                self._hold(os.fdopen(told), os.fdopen(answer, "w", buffering=1))
            finally:
                os._exit(1)
        os.close(told), os.close(answer)
        self._tell, self._answers = os.fdopen(tell, "w", buffering=1), os.fdopen(answered)
        if (said := self._answers.readline()) != "\n":
            self.close()
            raise OSError(said.strip() or "the process that holds the disk has ended")

    def _hold(self, orders: Any, answers: Any) -> None:
        def answered(do: Callable[[], None]) -> None:
            try:
                do()
                answers.write("\n")
            except OSError as error:
                answers.write(f"{error}\n")

        answered(self._make)
        for line in orders:
            size = int(line)
            answered(lambda size=size: self._mount(size))

    def _make(self) -> None:
        user, group = os.getuid(), os.getgid()
        if _libc().unshare(CLONE_NEWNS) != 0:
            _must(_libc().unshare(CLONE_NEWUSER | CLONE_NEWNS), "no namespace")
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _must(_libc().mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "no private mounts")
        _must(_libc().mount(b"tmpfs", os.fsencode(self.place), b"tmpfs", 0, b"size=4096"), "no file system")

    def _mount(self, size: int) -> None:
        words = f"size={size}".encode()
        _must(_libc().mount(b"tmpfs", os.fsencode(self.place), b"tmpfs", MS_REMOUNT, words), "no new size")

    def resize(self, size: int) -> None:
        """Give it so many bytes. What is on it stays."""
        self._tell.write(f"{size}\n")
        if (said := self._answers.readline()) != "\n":
            raise OSError(said.strip())

    def empty(self) -> None:
        """Remove what is on it."""
        for path in Path(f"/proc/{self.pid}/root{self.place}").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def enter(self) -> None:
        """From now on this process sees the disk at its place."""
        mounts = os.open(f"/proc/{self.pid}/ns/mnt", os.O_RDONLY)
        if os.readlink(f"/proc/{self.pid}/ns/user") != os.readlink("/proc/self/ns/user"):
            user = os.open(f"/proc/{self.pid}/ns/user", os.O_RDONLY)
            _must(_libc().setns(user, CLONE_NEWUSER), "cannot enter")
            os.close(user)
        _must(_libc().setns(mounts, CLONE_NEWNS), "cannot enter")
        os.close(mounts)

    def copy_to(self, target: Path) -> Path:
        """Copy what is on it to where all see it."""
        shutil.copytree(f"/proc/{self.pid}/root{self.place}", target, symlinks=True)
        return target

    def close(self) -> None:
        self._tell.close()
        self._answers.close()
        os.waitpid(self.pid, 0)

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"pid": self.pid, "place": self.place}
