"""Images decoded and resized once, in parallel, into one memory-mapped array; later runs never decode.

A cache is a folder: images.npy (n, 3, height, width), state.npy (0 to do, 1 good, 2 bad), bad.json, and index.json,
which is written last and holds a checksum. A preparation that was killed continues where it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any, Literal

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from sitar.errors import DataError
from sitar.images.files import Files
from sitar.records import to_json, write_atomic

VERSION = 1  # of the pixels: a change in decoding makes new caches
CHECKPOINT_SECONDS = 10.0  # between two states on disk from which a killed preparation continues
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
    crop_pct: float | None = None,
    on_bad: Literal["fail", "skip"] = "fail",
    workers: int | None = None,
    watch: Callable[[int], None] = lambda _: None,
) -> Cached:
    """Pixels of `names`, from the cache or made now. `watch` is told how many are done."""
    key = hashlib.sha256(f"{VERSION} {size}{'' if crop_pct is None else f' {crop_pct}'}".encode())
    for file in names:
        key.update(f"\n{file} {files.stamp(file)}".encode())
    folder = cache_root() / f"{name}-{size[0]}x{size[1]}-{key.hexdigest()[:16]}"
    if not (folder / "index.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if not (folder / "index.json").is_file():  # another process may have made it while this one waited
                _make(folder, names, files, size, crop_pct, workers or _workers(len(names)), watch)
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
    crop_pct: float | None,
    workers: int,
    watch: Callable[[int], None],
) -> None:
    images, state = _arrays(folder, len(names), size)
    todo = np.flatnonzero(state != GOOD)  # bad ones are tried again: their reasons are not kept before the end
    bad: dict[str, str] = {}
    done, saved = len(names) - len(todo), time.monotonic()
    shares = [part.tolist() for part in np.array_split(todo, workers)]
    for report in _decode(folder, names, files, size, crop_pct, shares):
        wrong = {int(place): reason for place, reason in report["bad"].items()}
        state[report["done"]] = [BAD if place in wrong else GOOD for place in report["done"]]
        bad |= {names[place]: reason for place, reason in wrong.items()}
        done += len(report["done"])
        if time.monotonic() - saved >= CHECKPOINT_SECONDS:
            images.flush()  # pixels before the state that vouches for them
            state.flush()
            saved = time.monotonic()
        watch(done)
    images.flush()
    state.flush()
    checksum = hashlib.blake2b(images.data, digest_size=32)
    checksum.update(state.data)
    write_atomic(folder / "bad.json", to_json(dict(sorted(bad.items()))))
    index = {"version": VERSION, "n": len(names), "checksum": checksum.hexdigest()}
    write_atomic(folder / "index.json", to_json(index))


def _decode(
    folder: Path,
    names: Sequence[str],
    files: Files,
    size: tuple[int, int],
    crop_pct: float | None,
    shares: list[list[int]],
) -> Iterator[dict[str, Any]]:
    """Reports of processes that decode a share each. Processes, since Pillow holds the interpreter while it decodes;
    of a module of their own, so that a user's script needs no guard against being imported by them."""
    reports: Queue[dict[str, Any] | None] = Queue()

    def listen(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            reports.put(json.loads(line))
        reports.put(None)

    processes: list[subprocess.Popen[str]] = []
    listeners: list[threading.Thread] = []
    try:
        for _ in shares:  # all start before one is given its task
            process = subprocess.Popen(
                [sys.executable, "-m", "sitar.images.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": _path()},
            )  # fmt: skip
            processes.append(process)
            listeners.append(threading.Thread(target=listen, args=(process,), daemon=True))
            listeners[-1].start()
        for process, share in zip(processes, shares, strict=True):
            task = {
                "array": str(folder / "images.npy"), "size": size, "crop_pct": crop_pct,
                "places": share, "names": [names[i] for i in share],
                "folders": [str(path) for path in files.folders], "archives": [str(path) for path in files.archives],
            }  # fmt: skip
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:  # one that has died is found below
                process.stdin.write(json.dumps(task))
        running = len(processes)
        while running:
            report = reports.get()
            if report is None:
                running -= 1
            else:
                yield report
        if any(process.wait() for process in processes):
            raise DataError("A process that decodes images has died: too little memory? The same command continues.")
    finally:
        for process, listener in zip(processes, listeners, strict=True):
            process.kill()
            process.wait()
            listener.join()
            assert process.stdout is not None
            process.stdout.close()


def _workers(images: int) -> int:
    """A process a core, and none for fewer images than its start is worth."""
    return max(1, min(os.cpu_count() or 1, 16, images // 500))


def _path() -> str:
    """Where the workers find this very package, however it was imported."""
    return os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])


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
