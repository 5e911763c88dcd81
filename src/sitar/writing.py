"""Write files that are there whole or not at all, whatever happens: a kill, a full disk, a power cut.

A new file lies beside the old one under a name of its own, `.NAME.xxxxxxxx.new`, until it is whole and on the disk. The
process that writes it holds a lock on it, which ends with the process. So what a killed process has left can be told
from what another one is writing, and the next writer removes it.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: nothing is known to be abandoned, and nothing is removed
    fcntl = None

NEW = ".new"


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of `path` when it is whole and on the disk."""
    _remove_abandoned(path.parent, f".{path.name}", os.unlink)
    with _naming(path), ExitStack() as claim:
        file = _new_file(path, claim)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a folder for files that nobody keeps, and remove it at the end.

    Folders of this name that killed processes have left are removed at the start.
    """
    _remove_abandoned(parent, name, shutil.rmtree)
    with ExitStack() as claim:
        while True:
            folder = parent / f"{name}.{secrets.token_hex(4)}{NEW}"
            folder.mkdir()
            if _claimed(folder, claim):
                break
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file that has no room. Of a full disk, the system does not say which one it was."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or str(error.filename).endswith(NEW)):
            error.filename, error.filename2 = str(path), None
        raise


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk. Without this a power cut may undo a rename."""
    if os.name != "posix":
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder that one may write into, and not read
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot promise it
            raise
    finally:
        os.close(handle)


def _new_file(path: Path, claim: ExitStack) -> BinaryIO:
    while True:
        file = path.with_name(f".{path.name}.{secrets.token_hex(4)}{NEW}").open("xb")
        if _claimed(Path(file.name), claim):
            return file
        file.close()


def _claimed(path: Path, claim: ExitStack) -> bool:
    """Lock what was just made, until `claim` ends. False: another process took it for abandoned first."""
    if fcntl is None:
        return True
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with suppress(OSError):  # a file system without locks, on which nobody removes anything
        fcntl.flock(handle, fcntl.LOCK_EX)
    claim.callback(os.close, handle)
    return path.exists()


def _remove_abandoned(folder: Path, name: str, remove: Callable[[Path], object]) -> None:
    """Remove what was begun under this name, and what no process holds any more."""
    if fcntl is None:
        return
    for left in folder.glob(f"{glob.escape(name)}.????????{NEW}"):
        with suppress(OSError):  # it is held, or another process removes it
            handle = os.open(left, os.O_RDONLY | os.O_NONBLOCK)  # a pipe of this name is not waited for
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(left)  # while it is locked: its maker may be just about to lock it
            finally:
                os.close(handle)
