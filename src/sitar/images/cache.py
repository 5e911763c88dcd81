"""Images are decoded and resized once, in parallel, into one memory-mapped array. Later runs never decode.

A cache is a folder. It holds images.npy (n, channels, height, width), state.npy (0 to do, 1 good, 2 bad), bad.json, and
index.json, which is written last and holds a checksum, made of those of the images. A preparation that was killed, or
that bad files have stopped, continues where it was.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from sitar.errors import DataError
from sitar.files import locked, to_json, write_atomic
from sitar.images.decoder_pool import DecoderPool
from sitar.images.files import Files

logger = logging.getLogger(__name__)
VERSION = 2  # of the pixels: a change in decoding makes new caches
CHUNK = 64  # images that a process is given at a time
CHECKPOINT_SECONDS = 10.0  # between two states on disk from which a killed preparation continues
TO_DO, GOOD, BAD = range(3)
CLOSED = "index.json"  # the file that says that a cache is complete


@dataclass(frozen=True)
class Cached:
    """Holds decoded images and which of them are good, in the order in which the files were given."""

    images: NDArray[np.uint8]
    good: NDArray[np.bool_]
    bad: dict[str, str]
    checksum: str

    def warn(self) -> None:
        """Say how many images were left out, where that was allowed."""
        if self.bad:
            file, reason = next(iter(self.bad.items()))
            logger.warning("%d of %d images are left out, such as %s: %s.", len(self.bad), len(self.good), file, reason)


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
        cached = _read(folder)
    except (OSError, ValueError, EOFError, KeyError, TypeError) as error:
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


def _read(folder: Path) -> Cached:
    """Read a cache. It has no checksum where bad images have kept it from being closed."""
    bad = json.loads((folder / "bad.json").read_text(encoding="utf-8"))
    closed = folder / CLOSED
    checksum = json.loads(closed.read_text(encoding="utf-8"))["checksum"] if closed.is_file() else ""
    images = np.load(folder / "images.npy", mmap_mode="c")  # "c": torch wants memory it may write; nobody does
    return Cached(images, np.load(folder / "state.npy") == GOOD, bad, checksum)


def _make(
    folder: Path,
    names: Sequence[str],
    files: Files,
    form: dict[str, Any],
    on_bad: Literal["fail", "skip"],
    workers: int,
    watch: Callable[[int], None],
) -> None:
    images, state = _arrays(folder, (len(names), form["channels"], *form["size"]))
    todo = np.flatnonzero(state != GOOD)  # bad ones are tried again: a package that they need may have been installed
    chunks = [todo[start : start + CHUNK].tolist() for start in range(0, len(todo), CHUNK)]
    sums = np.zeros(len(names), dtype="<u4")
    for place in np.flatnonzero(state == GOOD):
        sums[place] = zlib.crc32(images[place].data)
    bad: dict[str, str] = {}
    done, saved = len(names) - len(todo), time.monotonic()
    with DecoderPool(folder / "images.npy", images.offset, files, form, workers) as pool:
        for decoded in pool.decode(names, chunks):
            state[decoded.places] = [BAD if place in decoded.bad else GOOD for place in decoded.places]
            sums[decoded.places] = decoded.checksums
            bad |= {names[place]: reason for place, reason in decoded.bad.items()}
            done += len(decoded.places)
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                images.flush()  # pixels before the state that vouches for them
                state.flush()
                saved = time.monotonic()
            watch(done)
    images.flush()
    state.flush()
    checksum = hashlib.blake2b(sums.tobytes() + state.tobytes(), digest_size=32)
    write_atomic(folder / "bad.json", to_json(dict(sorted(bad.items()))))
    if not bad or on_bad == "skip":
        closing = {"version": VERSION, "n": len(names), "checksum": checksum.hexdigest()}
        write_atomic(folder / CLOSED, to_json(closing))


def workers_for(images: int) -> int:
    """Return how many processes to start: one a core, and none for fewer images than its start is worth."""
    return max(1, min(os.cpu_count() or 1, 16, images // 500))


def _arrays(folder: Path, shape: tuple[int, ...]) -> tuple[np.memmap, np.memmap]:
    """Open images and state: those that a killed preparation has left, or new ones."""
    images, state = folder / "images.npy", folder / "state.npy"
    if state.is_file():
        try:
            left = open_memmap(images, mode="r+"), open_memmap(state, mode="r+")
            if left[0].shape == shape and left[1].shape == shape[:1]:
                return left
        except (ValueError, OSError):
            state.unlink()  # cut while it was made: nothing to continue
    made = open_memmap(images, mode="w+", dtype=np.uint8, shape=shape)
    return made, open_memmap(state, mode="w+", dtype=np.uint8, shape=shape[:1])
