"""Images decoded and resized once, in parallel, into one memory-mapped array; later runs never decode.

A cache is a folder: images.npy (n, 3, height, width), state.npy (0 to do, 1 good, 2 bad), bad.json, and index.json,
which is written last and holds a checksum. A preparation that was killed continues where it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from sitar.data.files import Files
from sitar.data.images import BadImageError, decode
from sitar.errors import DataError
from sitar.records import to_json, write_atomic

VERSION = 1  # of the pixels: a change in decoding makes new caches
CHUNK = 512
TO_DO, GOOD, BAD = range(3)


@dataclass(frozen=True)
class Cached:
    """Decoded images and which of them are good, in the order in which the files were given."""

    images: NDArray[np.uint8]
    good: NDArray[np.bool_]
    bad: dict[str, str]
    checksum: str


def cache_root() -> Path:
    """SITAR_CACHE, or the user's cache folder."""
    return Path(os.environ.get("SITAR_CACHE") or Path.home() / ".cache" / "sitar")


def cached_images(
    name: str,
    names: Sequence[str],
    files: Files,
    size: tuple[int, int],
    *,
    on_bad: Literal["fail", "skip"] = "fail",
    workers: int | None = None,
    watch: Callable[[int], None] = lambda _: None,
) -> Cached:
    """Pixels of `names`, from the cache or made now. `watch` is told how many are done."""
    key = hashlib.sha256(f"{VERSION} {size}".encode())
    for file in names:
        key.update(f"\n{file} {files.stamp(file)}".encode())
    folder = cache_root() / f"{name}-{size[0]}x{size[1]}-{key.hexdigest()[:16]}"
    if not (folder / "index.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if not (folder / "index.json").is_file():  # another process may have made it while this one waited
                _make(folder, names, files, size, workers or min(16, os.cpu_count() or 1), watch)
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    bad = json.loads((folder / "bad.json").read_text(encoding="utf-8"))
    if bad and on_bad == "fail":
        some = "; ".join(f"{file}: {reason}" for file, reason in list(bad.items())[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise DataError(
            f"{len(bad)} of {len(names)} images cannot be used ({some}{more}); all are listed in "
            f"{str(folder / 'bad.json')!r}. Repair or remove them, or leave them out with data.on_bad=skip."
        )
    images = np.load(folder / "images.npy", mmap_mode="c")  # "c": torch wants memory it may write; nobody does
    return Cached(images, np.load(folder / "state.npy") == GOOD, bad, index["checksum"])


def _make(
    folder: Path,
    names: Sequence[str],
    files: Files,
    size: tuple[int, int],
    workers: int,
    watch: Callable[[int], None],
) -> None:
    images, state = _arrays(folder, len(names), size)
    bad: dict[str, str] = {}

    def one(i: int) -> tuple[int, str | None]:
        try:
            images[i] = decode(files.read(names[i]), size)
        except FileNotFoundError:
            return i, "there is no such file"
        except BadImageError as error:
            return i, str(error)
        return i, None

    todo = np.flatnonzero(state != GOOD)  # bad ones are tried again: their reasons are not kept before the end
    done = len(names) - len(todo)
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(todo), CHUNK):
            chunk = todo[start : start + CHUNK]
            for i, reason in pool.map(one, chunk.tolist()):
                state[i] = GOOD if reason is None else BAD
                if reason is not None:
                    bad[names[i]] = reason
            images.flush()  # pixels before the state that vouches for them
            state.flush()
            done += len(chunk)
            watch(done)
    checksum = hashlib.sha256(state.tobytes())
    for start in range(0, len(names), CHUNK):
        checksum.update(images[start : start + CHUNK].tobytes())
    write_atomic(folder / "bad.json", to_json(bad))
    write_atomic(
        folder / "index.json", to_json({"version": VERSION, "n": len(names), "checksum": checksum.hexdigest()})
    )


def _arrays(folder: Path, n: int, size: tuple[int, int]) -> tuple[np.memmap, np.memmap]:
    """Images and state: those that a killed preparation has left, or new ones."""
    images, state = folder / "images.npy", folder / "state.npy"
    if state.is_file():
        try:
            found = open_memmap(images, mode="r+"), open_memmap(state, mode="r+")
            if found[0].shape == (n, 3, *size) and found[1].shape == (n,):
                return found
        except (ValueError, OSError):
            state.unlink()  # cut while it was made: nothing to continue
    made = open_memmap(images, mode="w+", dtype=np.uint8, shape=(n, 3, *size))
    return made, open_memmap(state, mode="w+", dtype=np.uint8, shape=(n,))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for other processes that make the same cache; a killed one leaves no lock behind."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
