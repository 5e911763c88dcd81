"""The local engine does jobs in processes of this machine. A process that dies is replaced, and its job continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self

from sitar.errors import ConfigError
from sitar.interpreter import module_command, module_environment, read_answer
from sitar.sweeps.engines.job import RETRIES, Ended, Job

LOOK_SECONDS = 0.5  # after which a caller hears something, even if nothing has ended
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(eq=False)
class Worker:
    """A worker is one process. It has a place, which decides its GPU, and jobs that it does together, mostly one."""

    place: int
    process: subprocess.Popen[str]
    listener: threading.Thread | None = None
    jobs: tuple[Job, ...] = ()


@dataclass
class LocalEngine:
    """Does jobs in `workers` processes, which are started when they are needed and kept for the next job.

    `threads` limits each process. `gpus` are the names of CUDA devices, which are given in turn; empty: every process
    sees all of them. A process is given up to `together` jobs at once that follow each other and differ in the seed
    alone.
    """

    workers: int
    threads: int | None = None
    gpus: Sequence[str] = ()
    retries: int = RETRIES
    together: int = 1
    _alive: list[Worker] = field(default_factory=list)
    _reports: Queue[tuple[Worker, dict[str, Any] | None]] = field(default_factory=Queue)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in list(self._alive):
            self._end(worker)

    def room(self) -> int:
        return self.workers

    def run(self, jobs: Iterable[Job]) -> Iterator[Ended | None]:
        """Yield each job as it ends, and None now and then while nothing does."""
        waiting, again, losses = _Ahead(iter(jobs)), [], {}
        while True:
            while self._has_room():
                given = (again.pop(),) if again else waiting.alike(self.together)
                if not given:
                    break
                self._give(self._idle() or self._start(), given)
            if not any(worker.jobs for worker in self._alive):
                return
            try:
                worker, answer = self._reports.get(timeout=LOOK_SECONDS)
            except Empty:
                yield None
                continue
            done, worker.jobs = worker.jobs, ()
            if answer is not None:
                yield from map(Ended, done, answer["errors"])
                continue
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(LOOK_SECONDS)  # its last words come before its end
            status = self._end(worker)
            for job in done:
                losses[job] = losses.get(job, 0) + 1
                if losses[job] <= self.retries:
                    again.append(job)
                else:
                    yield Ended(job, f"Its process ended {losses[job]} times: {_why(status)}.")

    def _has_room(self) -> bool:
        return len(self._alive) < self.workers or self._idle() is not None

    def _idle(self) -> Worker | None:
        """Return a process without a job, if there is one."""
        return next((worker for worker in self._alive if not worker.jobs), None)

    def _start(self) -> Worker:
        place = min(set(range(self.workers)) - {worker.place for worker in self._alive})
        environment = module_environment()
        if self.threads is not None:
            environment |= dict.fromkeys(THREADS, str(self.threads))
        if self.gpus:
            environment[VISIBLE] = self.gpus[place % len(self.gpus)]
        process = subprocess.Popen(
            module_command("sitar.sweeps.engines.worker"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, **_out_of_reach(),
        )  # fmt: skip
        worker = Worker(place, process)
        worker.listener = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        self._alive.append(worker)
        worker.listener.start()
        return worker

    def _listen(self, worker: Worker) -> None:
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            if (answer := read_answer(line)) is not None:
                self._reports.put((worker, answer))
        self._reports.put((worker, None))

    def _give(self, worker: Worker, jobs: tuple[Job, ...]) -> None:
        worker.jobs = jobs
        assert worker.process.stdin is not None
        with suppress(BrokenPipeError):  # a process that has died is noticed where its answers are read
            worker.process.stdin.write(json.dumps([job.to_dict() for job in jobs]) + "\n")
            worker.process.stdin.flush()

    def _end(self, worker: Worker) -> int:
        """End a process with all that it has started, and return the status that it had, or has now."""
        self._alive.remove(worker)
        process = worker.process
        status = process.poll()
        _kill(process)
        status = process.wait() if status is None else status
        if worker.listener is not None:
            worker.listener.join()
        for stream in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]
        return status


@dataclass
class _Ahead:
    """Takes jobs one by one, and looks one ahead only where jobs are done together."""

    jobs: Iterator[Job]
    next: Job | None = None

    def alike(self, most: int) -> tuple[Job, ...]:
        """Take the next job, and those right after it that have its recipe. None is left: it is empty."""
        first = self._take()
        found = [] if first is None else [first]
        while found and len(found) < most and (job := self._take()) is not None:
            if job.recipe != found[0].recipe:
                self.next = job
                break
            found.append(job)
        return tuple(found)

    def _take(self) -> Job | None:
        job, self.next = self.next, None
        return job or next(self.jobs, None)


def _kill(process: subprocess.Popen[str]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _why(status: int) -> str:
    if sys.platform != "win32" and status == -signal.SIGKILL:
        return "it was killed, perhaps because the machine has too little memory; fewer --workers need less"
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _out_of_reach() -> dict[str, Any]:
    """Return the options that keep Ctrl-C from the processes: it is for this one, which ends them."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus(device: str) -> list[str]:
    """Return the CUDA devices that runs on `device` may be spread over. A device that is named alone is no choice."""
    if device not in ("auto", "cuda"):
        return []
    import torch

    try:
        count = torch.cuda.device_count()
    except ValueError as error:  # torch reads the variable as it is
        raise ConfigError(
            f"The environment variable {VISIBLE} is {os.environ.get(VISIBLE, '')[:40]!r}, which is no list of GPUs. "
            "Write numbers such as 0,1, or remove it."
        ) from error
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return named[:count] if named else [str(i) for i in range(count)]


def default_workers(gpus: Sequence[str]) -> int:
    """Return one process a GPU, or one a core, but at most four: each has its own copy of the data."""
    return len(gpus) or min(cores(), 4)


def default_threads(workers: int) -> int | None:
    """Return the threads of each process. None: a run alone chooses by itself, or the user has set a number."""
    if workers == 1 or any(os.environ.get(name) for name in THREADS):
        return None
    return max(1, cores() // workers)
