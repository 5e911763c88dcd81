"""Images decoded and resized once, in parallel, into one memory-mapped array; later runs never decode.

A cache is a folder: images.npy (n, channels, height, width), state.npy (0 to do, 1 good, 2 bad), bad.json, and
index.json, which is written last and holds a checksum, made of those of the images. A preparation that was killed, or
that bad files have stopped, continues where it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Queue
from typing import Any, Literal

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from sitar.errors import DataError
from sitar.files import to_json, write_atomic
from sitar.images.files import Files
from sitar.interpreter import module_command, module_environment

logger = logging.getLogger(__name__)
VERSION = 2  # of the pixels: a change in decoding makes new caches
CHUNK = 64  # images that a process is given at a time
CHECKPOINT_SECONDS = 10.0  # between two states on disk from which a killed preparation continues
TO_DO, GOOD, BAD = range(3)


@dataclass(frozen=True)
class Cached:
    """Decoded images and which of them are good, in the order in which the files were given."""

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
    """SITAR_CACHE, or the user's cache folder."""
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
    """Pixels of `names`, from the cache or made now. `watch` is told how many are done."""
    form = {"size": size, "crop_pct": crop_pct, "channels": channels}
    other = ("" if crop_pct is None else f" {crop_pct}") + ("" if channels == 3 else f" {channels} channels")
    key = hashlib.sha256(f"{VERSION} {size}{other}".encode())
    for file in names:
        key.update(os.fsencode(f"\n{file} {files.stamp(file)}"))
    folder = cache_root() / f"{name}-{size[0]}x{size[1]}-{key.hexdigest()[:16]}"
    if not (folder / "index.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if not (folder / "index.json").is_file():  # another process may have made it while this one waited
                _make(folder, names, files, form, on_bad, workers or _workers(len(names)), watch)
    try:
        cached = _read(folder)
    except (OSError, ValueError, EOFError, KeyError, TypeError) as error:
        raise DataError(
            f"The cache {str(folder)!r} is damaged ({error}). Remove that folder: it will be made again."
        ) from error
    if (bad := cached.bad) and on_bad == "fail":
        some = "; ".join(f"{file}: {reason}" for file, reason in list(bad.items())[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise DataError(
            f"{len(bad)} of {len(names)} images cannot be used ({some}{more}); all are listed in "
            f"{str(folder / 'bad.json')!r}. Repair or remove them, or leave them out with data.on_bad=skip."
        )
    return cached


def _read(folder: Path) -> Cached:
    """What is there; where bad images have kept the cache from being closed, without a checksum."""
    bad = json.loads((folder / "bad.json").read_text(encoding="utf-8"))
    closed = folder / "index.json"
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
    for report in _decode(folder, images.offset, names, files, form, workers, chunks):
        places, wrong = chunks[report["number"]], {int(place): reason for place, reason in report["bad"].items()}
        state[places] = [BAD if place in wrong else GOOD for place in places]
        sums[places] = report["sums"]
        bad |= {names[place]: reason for place, reason in wrong.items()}
        done += len(places)
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
        index = {"version": VERSION, "n": len(names), "checksum": checksum.hexdigest()}
        write_atomic(folder / "index.json", to_json(index))


def _decode(
    folder: Path,
    offset: int,
    names: Sequence[str],
    files: Files,
    form: dict[str, Any],
    workers: int,
    chunks: list[list[int]],
) -> Iterator[dict[str, Any]]:
    """What processes report of every chunk, as they finish it: its number, checksums, what was wrong with its images.

    Processes, since Pillow holds the interpreter while it decodes; of a module of their own, so that a user's script
    needs no guard against being imported by them. Each has two chunks, so that it never waits for the next.
    """
    processes: list[subprocess.Popen[str]] = []
    listeners: list[threading.Thread] = []
    reports: Queue[tuple[subprocess.Popen[str], dict[str, Any] | None]] = Queue()
    numbered = list(enumerate(chunks))
    waiting = [iter(numbered)] * workers
    if files.shards:  # cheap to read from front to back only: a part each
        waiting = [
            iter(numbered[len(chunks) * w // workers : len(chunks) * (w + 1) // workers]) for w in range(workers)
        ]

    def listen(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            reports.put((process, json.loads(line)))
        reports.put((process, None))

    def tell(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # one that has died says so below
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()

    def give(process: subprocess.Popen[str]) -> None:
        for number, places in islice(waiting[processes.index(process)], 1):
            tell(process, {"number": number, "images": [(place, names[place]) for place in places]})

    task = {
        "array": str(folder / "images.npy"), "offset": offset, "form": form,
        "folders": [str(path) for path in files.folders], "archives": [str(path) for path in files.archives],
        "shards": {name: str(shard.path) for name, shard in files.shards.items()},
    }  # fmt: skip
    try:
        for _ in range(workers):
            process = subprocess.Popen(
                module_command("sitar.images.worker"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=module_environment(),
                process_group=0,  # Ctrl-C is for this process, which ends them
            )  # fmt: skip
            processes.append(process)
            listeners.append(threading.Thread(target=listen, args=(process,), daemon=True))
            listeners[-1].start()
        for process in processes:
            tell(process, task)
        for process in [*processes, *processes]:
            give(process)
        for _ in chunks:
            process, report = reports.get()
            if report is None:
                raise DataError(
                    "A process that decodes images has died: too little memory, or a full disk? The same command "
                    f"continues. The cache is in {str(folder)!r}; SITAR_CACHE puts it elsewhere."
                )
            if "error" in report:
                raise DataError(report["error"])
            give(process)
            yield report
    finally:
        for process, listener in zip(processes, listeners, strict=True):
            process.kill()
            process.wait()
            listener.join()
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()


def _workers(images: int) -> int:
    """A process a core, and none for fewer images than its start is worth."""
    return max(1, min(os.cpu_count() or 1, 16, images // 500))


def _arrays(folder: Path, shape: tuple[int, ...]) -> tuple[np.memmap, np.memmap]:
    """Images and state: those that a killed preparation has left, or new ones."""
    images, state = folder / "images.npy", folder / "state.npy"
    if state.is_file():
        try:
            found = open_memmap(images, mode="r+"), open_memmap(state, mode="r+")
            if found[0].shape == shape and found[1].shape == shape[:1]:
                return found
        except (ValueError, OSError):
            state.unlink()  # cut while it was made: nothing to continue
    made = open_memmap(images, mode="w+", dtype=np.uint8, shape=shape)
    return made, open_memmap(state, mode="w+", dtype=np.uint8, shape=shape[:1])


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for other processes that make the same cache; a killed one leaves no lock behind."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
