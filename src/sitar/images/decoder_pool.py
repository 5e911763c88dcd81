"""Several processes decode images, in chunks, into an array that they share."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Any, NamedTuple, Self

from sitar.errors import DataError
from sitar.images.files import Files
from sitar.interpreter import module_command, module_environment, read_answer

Process = subprocess.Popen[str]


class Decoded(NamedTuple):
    """Says what became of a chunk: where its images stand, a checksum of each, and what is wrong with the bad ones.

    `narrow` are those that use little of the range of their values, with the range in words.
    """

    places: list[int]
    checksums: list[int]
    bad: dict[int, str]
    narrow: dict[int, str]


class DecoderPool:
    """Decodes images into the array in a .npy file, as a context in which the processes live.

    Processes, since Pillow holds the interpreter while it decodes. They run a module of their own, so that a user's
    script needs no guard against being imported by them. `form` are the arguments of `decode_bytes`.
    """

    def __init__(self, array: Path, offset: int, files: Files, form: dict[str, Any], workers: int) -> None:
        self.folder = array.parent
        self.files = files
        self.workers = workers
        self._task = {
            "array": str(array), "offset": offset, "form": form,
            "folders": [str(path) for path in files.folders], "archives": [str(path) for path in files.archives],
            "shards": {name: str(shard.path) for name, shard in files.shards.items()}, "column": files.column,
        }  # fmt: skip
        self._processes: list[Process] = []
        self._listeners: list[threading.Thread] = []
        self._reports: Queue[tuple[Process, dict[str, Any] | None]] = Queue()

    def __enter__(self) -> Self:
        try:
            for _ in range(self.workers):
                self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def decode(self, names: Sequence[str], chunks: list[list[int]]) -> Iterator[Decoded]:
        """Decode the images at the places that each chunk lists, and report every chunk as it is done."""
        waiting = dict(zip(self._processes, self._shares(chunks), strict=True))

        def give(process: Process) -> None:
            for number in islice(waiting[process], 1):
                _tell(process, {"number": number, "images": [(place, names[place]) for place in chunks[number]]})

        for process in self._processes:
            _tell(process, self._task)
        for process in [*self._processes, *self._processes]:  # two chunks each: none ever waits for the next
            give(process)
        for _ in chunks:
            process, report = self._reports.get()
            if report is None:
                raise DataError(
                    "A process that decodes images has died: too little memory, or a full disk? The same command "
                    f"continues. The cache is in {str(self.folder)!r}; SITAR_CACHE puts it elsewhere."
                )
            if "error" in report:
                raise DataError(report["error"])
            give(process)
            bad, narrow = ({int(place): words for place, words in report[key].items()} for key in ("bad", "narrow"))
            yield Decoded(chunks[report["number"]], report["sums"], bad, narrow)

    def _shares(self, chunks: list[list[int]]) -> list[Iterator[int]]:
        """Return, for each process, the numbers of the chunks that it takes from: all of one list, or a part each."""
        if not self.files.shards:
            return [iter(range(len(chunks)))] * self.workers  # one iterator, which all of them empty
        bounds = [len(chunks) * worker // self.workers for worker in range(self.workers + 1)]
        return [iter(range(*bounds[i : i + 2])) for i in range(self.workers)]  # cheap to read from front to back only

    def _start(self) -> None:
        process = subprocess.Popen(
            module_command("sitar.images.worker"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=module_environment(), **_out_of_reach(),
        )  # fmt: skip
        self._processes.append(process)
        self._listeners.append(threading.Thread(target=self._listen, args=(process,), daemon=True))
        self._listeners[-1].start()

    def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if (report := read_answer(line)) is not None:
                self._reports.put((process, report))
        self._reports.put((process, None))

    def _end(self) -> None:
        for process, listener in zip(self._processes, self._listeners, strict=True):
            process.kill()
            process.wait()
            listener.join()
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()


def _tell(process: Process, message: dict[str, Any]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # a process that has died is noticed where its reports are read
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()


def _out_of_reach() -> dict[str, Any]:
    """Return the options that keep Ctrl-C from the processes: it is for this one, which ends them."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}
