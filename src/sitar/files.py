"""Read and write whole files: atomically, without pickles, and by one process at a time."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that, whatever happens, either the old file or the whole new one is there."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def to_json(value: Any) -> bytes:
    """Return the text of a JSON file. NaN and infinity are refused, since JSON has neither."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def to_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of a compressed .npz file."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an .npz file. A file that cannot be read raises a ValueError that says why."""
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error


class LockedError(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock file at `path`. A process that was killed leaves no lock behind.

    If another process holds it, either wait, or raise a LockedError at once.
    """
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockedError(str(path)) from error
    try:
        yield
    finally:
        lock.release()
