"""An engine that does jobs in this process, one after the other: a new process would import torch again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from sitar.sweeps.engines.job import Ended, Job, attempt


class InProcess:
    """Takes the arguments of any engine. `do` returns what went wrong with a job, or None."""

    def __init__(self, workers: int = 1, *_: object, do: Callable[[Job], str | None] = attempt, **__: Any) -> None:
        self.workers, self.do = workers, do
        self.done: list[Job] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def room(self) -> int:
        return self.workers

    def run(self, jobs: Iterable[Job]) -> Iterator[Ended | None]:
        for job in jobs:
            yield None
            self.done.append(job)
            yield Ended(job, self.do(job))
