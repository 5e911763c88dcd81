"""One process at a time works on a file or a folder. A lock file says which process that is.

The operating system holds the lock, so a process that was killed leaves none behind: the file stays, and means nothing.
What stands in it is only for the message that another process shows.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

logger = logging.getLogger(__name__)
PATIENCE = 1.0  # seconds of waiting before a word is said about it
MOST = 4096  # bytes that are read of a lock file
NAMING = 3.0  # seconds that a process may take from holding the lock to saying that it does, on a busy machine


class LockedError(Exception):
    """Another process holds the lock. `owner` says which, such as "Process 4711"."""

    def __init__(self, path: Path) -> None:
        self.owner = owner_of(path)
        super().__init__(f"{self.owner} holds {str(path)!r}")


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock file at `path`.

    If another process holds it, either wait, and say for whom, or raise a LockedError at once.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=PATIENCE if wait else 0)
    except Timeout as error:
        if not wait:
            raise LockedError(path) from error
        logger.warning("%s works on %r. Waiting until it is done.", owner_of(path), str(path.parent))
        lock.acquire(timeout=-1)
    try:
        if not isinstance(lock, SoftFileLock):  # which names its owner itself
            _write_owner(path)
        yield
    finally:
        lock.release()


def owner_of(path: Path, patience: float | None = None) -> str:
    """Name the process that holds the lock file at `path`, as the beginning of a sentence.

    A lock file that was left by a process that has ended still names it. So a name only counts if it is that of a
    process of another machine, or of one that runs.
    """
    end = time.monotonic() + (NAMING if patience is None else patience)
    while True:
        with suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            with path.open("rb") as file:
                owner = json.loads(file.read(MOST))
            process, host = int(owner["process"]), str(owner["host"])[:99]
            if process <= 0 or not host.isprintable():
                raise ValueError("no process, or no host")
            if host != socket.gethostname():
                return f"Process {process} on {host}"
            if _runs(process):
                return f"Process {process}"
        if time.monotonic() >= end:
            return "Another process"
        time.sleep(0.05)


def _write_owner(path: Path) -> None:
    with suppress(OSError), path.open("r+", encoding="utf-8") as file:  # Windows lets nobody write into a locked file
        if os.fstat(file.fileno()).st_nlink > 1:  # another name of a file that is no lock
            return
        file.truncate()
        file.write(json.dumps({"process": os.getpid(), "host": socket.gethostname()}) + "\n")


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0) if os.name == "posix" else None
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True
