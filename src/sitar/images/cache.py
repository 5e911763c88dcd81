"""Images are decoded and resized once, in parallel, into one memory-mapped array. Later runs never decode.

A cache is a folder. It holds images.npy (n, channels, height, width), state.npy (0 to do, 1 good, 2 bad), sums.npy (the
CRC-32 of each image), bad.json, narrow.json where images use little of their range, and index.json, which is written
last and holds a checksum of sums and state. A preparation that was killed, or that bad files have stopped, continues
where it was.

What is checked when: sums and state when a cache is opened, and each image when a process first reads it. Images that a
killed preparation has left are checked before it continues, and those that are damaged are decoded again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import shutil
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from sitar.errors import DataError
from sitar.files import NPZ_ERRORS, read_npy, to_json, to_npy, write_atomic, write_npy_header
from sitar.images.decoder_pool import DecoderPool
from sitar.images.files import Files
from sitar.integrity import RowSums
from sitar.locks import locked

logger = logging.getLogger(__name__)
VERSION = 2  # of the pixels: a change in decoding makes new caches
CHUNK = 64  # images that a process is given at a time
CHECKPOINT_SECONDS = 10.0  # between two states on disk from which a killed preparation continues
TO_DO, GOOD, BAD = range(3)
IMAGES, STATE, SUMS, NARROW = "images.npy", "state.npy", "sums.npy", "narrow.json"
CLOSED = "index.json"  # the file that says that a cache is complete


@dataclass(frozen=True)
class Cached:
    """Holds decoded images and which of them are good, in the order in which the files were given."""

    images: NDArray[np.uint8]
    good: NDArray[np.bool_]
    bad: dict[str, str]
    checksum: str
    sums: RowSums
    narrow: Mapping[str, str] = field(default_factory=dict)
    """Images that use little of the range of their values, with the range in words."""

    def rows(self, places: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Copy images, and compare them with their checksums."""
        rows = self.images[places]
        self.sums.check(places, rows)
        return rows

    def warn(self, images: str) -> None:
        """Say how many images were left out, where that was allowed, and how many will be nearly of one shade.

        `images` is what the caller calls them.
        """
        if self.bad:
            file, reason = next(iter(self.bad.items()))
            logger.warning(
                "%d of %d %s are left out, such as %s: %s.", len(self.bad), len(self.good), images, file, reason
            )
        self.warn_of_narrow()

    def warn_of_narrow(self) -> None:
        """Say how many images use little of the range of their values."""
        if self.narrow:
            warn_of_narrow(len(self.narrow), len(self.good), *next(iter(self.narrow.items())))


def warn_of_narrow(count: int, of: int, file: str, words: str) -> None:
    """Say how many images of more than eight bits use little of their range, with an example, and what to do."""
    logger.warning(
        "%d of %d images have more than eight bits and use less than a tenth of their range, such as %s: %s. In eight "
        "bits each of them is nearly of one shade. Scale the values of all images alike, also of those that will be "
        "predicted, so that they fill the range: those of twelve bits times 16.",
        count, of, file, words,
    )  # fmt: skip


def cache_root() -> Path:
    """Return the folder that SITAR_CACHE names, or that of the user."""
    return Path(os.environ.get("SITAR_CACHE") or Path.home() / ".cache" / "sitar")


def cached_images(
    name: str,
    names: Sequence[str],
    files: Files,
    size: tuple[int, int],
    *,
    crop_pct: float | None = None,
    channels: int = 3,
    on_bad: Literal["fail", "skip"] = "fail",
    workers: int | None = None,
    watch: Callable[[int], None] = lambda _: None,
) -> Cached:
    """Return the pixels of the images that `names` lists, from the cache or decoded now.

    `watch` is told how many are done.
    """
    form = {"size": size, "crop_pct": crop_pct, "channels": channels}
    other = ("" if crop_pct is None else f" {crop_pct}") + ("" if channels == 3 else f" {channels} channels")
    key = hashlib.sha256(f"{VERSION} {size}{other}".encode())
    for file in names:
        key.update(os.fsencode(f"\n{file} {files.stamp(file)}"))
    folder = cache_root() / f"{name}-{size[0]}x{size[1]}-{key.hexdigest()[:16]}"
    if not (folder / CLOSED).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", wait=True):  # one process makes it, the others wait
            if not (folder / CLOSED).is_file():  # another process may have made it while this one waited
                _make(folder, names, files, form, on_bad, workers or workers_for(len(names)), watch)
    try:
        cached = _read(folder, (len(names), channels, *size))
    except (OSError, ValueError, EOFError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"The cache {str(folder)!r} is damaged ({error}). Remove that folder: it will be made again."
        ) from error
    if (bad := cached.bad) and on_bad == "fail":
        first = "; ".join(f"{file}: {reason}" for file, reason in list(bad.items())[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise DataError(
            f"{len(bad)} of {len(names)} images cannot be used ({first}{more}); all are listed in "
            f"{str(folder / 'bad.json')!r}. Repair or remove them, or leave them out with data.on_bad=skip."
        )
    return cached


def _read(folder: Path, shape: tuple[int, ...]) -> Cached:
    """Read a cache. It has no checksum where bad images have kept it from being closed."""
    bad = json.loads((folder / "bad.json").read_text(encoding="utf-8"))
    if not isinstance(bad, dict):
        raise ValueError("bad.json is no list of files with reasons")
    images, state = read_npy(folder / IMAGES), np.array(read_npy(folder / STATE))
    if images.shape != shape or images.dtype != np.uint8:
        raise ValueError(f"{IMAGES} has the shape {images.shape} and holds {images.dtype}")
    if state.shape != shape[:1] or state.dtype != np.uint8:
        raise ValueError(f"{STATE} has the shape {state.shape} and holds {state.dtype}")
    is_old = not (folder / SUMS).is_file()  # an earlier release made it
    sums = _sums(images, state) if is_old else np.array(read_npy(folder / SUMS))
    if sums.shape != shape[:1] or sums.dtype != "<u4":
        raise ValueError(f"{SUMS} has the shape {sums.shape} and holds {sums.dtype}")
    checksum = ""
    if (closed := folder / CLOSED).is_file():
        checksum = json.loads(closed.read_text(encoding="utf-8"))["checksum"]
        if checksum != _checksum(sums, state):
            raise ValueError(f"{IMAGES if is_old else SUMS} or {STATE} is not what was written, by the checksum")
        if is_old:
            with suppress(OSError):  # somebody else's cache
                write_atomic(folder / SUMS, to_npy(sums))
    return Cached(images, state == GOOD, bad, checksum, RowSums(sums, folder), _narrow(folder))


def _narrow(folder: Path) -> dict[str, str]:
    """Read which images use little of their range. A cache without such images has no such file."""
    try:
        narrow = json.loads((folder / NARROW).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if not isinstance(narrow, dict):
        raise ValueError(f"{NARROW} is no list of files with ranges")
    return narrow


def _write_narrow(folder: Path, narrow: Mapping[str, str]) -> None:
    if narrow:
        write_atomic(folder / NARROW, to_json(dict(sorted(narrow.items()))))


def _sums(images: NDArray[np.uint8], state: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the checksum of each image that is good."""
    sums = np.zeros(len(images), "<u4")
    for place in np.flatnonzero(state == GOOD):
        sums[place] = zlib.crc32(images[place].data)
    return sums


def _checksum(sums: NDArray[np.uint32], state: NDArray[np.uint8]) -> str:
    return hashlib.blake2b(sums.tobytes() + state.tobytes(), digest_size=32).hexdigest()


def _make(
    folder: Path,
    names: Sequence[str],
    files: Files,
    form: dict[str, Any],
    on_bad: Literal["fail", "skip"],
    workers: int,
    watch: Callable[[int], None],
) -> None:
    images, state, sums = _arrays(folder, (len(names), form["channels"], *form["size"]))
    state[(state == GOOD) & (_sums(images, state) != sums)] = TO_DO  # damaged since
    todo = np.flatnonzero(state != GOOD)  # bad ones are tried again: a package that they need may have been installed
    chunks = [todo[start : start + CHUNK].tolist() for start in range(0, len(todo), CHUNK)]
    bad: dict[str, str] = {}
    narrow: dict[str, str] = {}
    with suppress(OSError, ValueError, RecursionError):  # what a killed preparation has left may be damaged
        narrow = _narrow(folder)
    done, saved = len(names) - len(todo), time.monotonic()
    with DecoderPool(folder / IMAGES, images.offset, files, form, workers) as pool:
        for decoded in pool.decode(names, chunks):
            state[decoded.places] = [BAD if place in decoded.bad else GOOD for place in decoded.places]
            sums[decoded.places] = decoded.checksums
            bad |= {names[place]: reason for place, reason in decoded.bad.items()}
            narrow |= {names[place]: words for place, words in decoded.narrow.items()}
            done += len(decoded.places)
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                _write_narrow(folder, narrow)
                for array in (images, sums, state):  # pixels before the state that vouches for them
                    array.flush()
                saved = time.monotonic()
            watch(done)
    for array in (images, sums, state):
        array.flush()
    write_atomic(folder / "bad.json", to_json(dict(sorted(bad.items()))))
    _write_narrow(folder, narrow)
    if not bad or on_bad == "skip":
        closing = {"version": VERSION, "n": len(names), "checksum": _checksum(sums, state)}
        write_atomic(folder / CLOSED, to_json(closing))


def workers_for(images: int) -> int:
    """Return how many processes to start: one a core, and none for fewer images than its start is worth."""
    return max(1, min(os.cpu_count() or 1, 16, images // 500))


def _arrays(folder: Path, shape: tuple[int, ...]) -> list[np.memmap]:
    """Open images, state and sums: those that a killed preparation has left, or new ones."""
    kinds = {IMAGES: (shape, np.uint8), STATE: (shape[:1], np.uint8), SUMS: (shape[:1], "<u4")}
    if all((folder / name).is_file() for name in kinds):
        left = []
        with suppress(*NPZ_ERRORS):  # cut while it was made: nothing to continue
            left = [open_memmap(folder / name, mode="r+") for name in kinds]
        if [(array.shape, array.dtype) for array in left] == [(size, np.dtype(kind)) for size, kind in kinds.values()]:
            for name in kinds:
                _reserve(folder / name)
            return left
    (folder / STATE).unlink(missing_ok=True)  # before the images that it vouches for
    return [new_array(folder / name, size, kind) for name, (size, kind) in kinds.items()]


def new_array(path: Path, shape: tuple[int, ...], kind: DTypeLike) -> np.memmap:
    """Make an array in a file that has its room on the disk."""
    with path.open("wb") as file:
        write_npy_header(file, shape, np.dtype(kind))
        file.truncate(file.tell() + math.prod(shape) * np.dtype(kind).itemsize)
    try:
        _reserve(path)
    except DataError:
        path.unlink()  # a part of its room may be taken, and others need it
        raise
    return open_memmap(path, mode="r+")


def _reserve(path: Path) -> None:
    """Have the disk keep room for all of a file.

    Without it, a disk that is full ends the process that writes to a page of the array, and no message says why.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    with path.open("r+b") as file:
        status = path.stat()
        size, taken = status.st_size, 512 * status.st_blocks
        if taken >= size:
            return
        full = DataError(
            f"The images need {size / 1e9:,.2f} GB ({size:,} bytes) for {str(path)!r}, and there is no room for "
            "them. Make room, or name a folder on another disk in the environment variable SITAR_CACHE."
        )
        if size - taken > shutil.disk_usage(path.parent).free:
            raise full
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise full from error  # else it is a file system that cannot promise it
