"""A job is one run that an engine has made somewhere: a folder and settings, as plain data."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from sitar.errors import SitarError
from sitar.plugins import import_file
from sitar.run_folder import RunFolder

RETRIES = 2  # after a process was lost


@dataclass(frozen=True)
class Job:
    """A job says which run to make, and where.

    Jobs with the same `recipe` differ in the seed alone. An engine may hand them over together, to be trained as one.
    """

    folder: str
    preset: str
    seed: int
    overrides: tuple[str, ...] = ()
    device: str = "auto"
    imports: tuple[str, ...] = ()  # Python files of the user's own, which add methods and datasets
    explain: bool = False  # as `sitar explain` does, once it is trained
    log: str | None = None  # file for what the run prints

    @property
    def recipe(self) -> tuple[Any, ...]:
        return (self.preset, self.overrides, self.device, self.imports, self.explain)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list | tuple)}
        return cls(**{**values, **lists})


class Ended(NamedTuple):
    """A job has ended, with an error or without."""

    job: Job
    error: str | None = None


class Engine(AbstractContextManager["Engine"], Protocol):
    """An engine does jobs while its context is open. Leaving the context ends whatever still runs."""

    def room(self) -> int:
        """Return how many jobs run at the same time."""
        ...

    def run(self, jobs: Iterable[Job]) -> Iterator[Ended | None]:
        """Yield each job as it ends, and None now and then while nothing does.

        The next job is taken from `jobs` when there is room for it, and not before.
        """
        ...


def perform(job: Job) -> None:
    """Make the run of a job. One that was stopped continues from its checkpoint; a finished one is left as it is."""
    from sitar.training.run import train

    for file in job.imports:
        import_file(file)
    train(
        job.preset, overrides=job.overrides, seed=job.seed, out=job.folder, device=job.device,
        resume=True, progress=job.log is not None,
    )  # fmt: skip
    if job.explain:
        from sitar.analysis.explain.explain import explain_runs

        folder = RunFolder(Path(job.folder))
        if not folder.is_explained:
            list(explain_runs([folder], device=job.device))


def attempt(job: Job) -> str | None:
    """Perform a job, and return what went wrong, or None. What it prints goes into its log."""
    with _printing_into(job.log):
        return _error(lambda: perform(job))


def attempt_together(jobs: Sequence[Job]) -> list[str | None]:
    """Train jobs of one recipe together, then perform each. Return what went wrong with each, or None.

    What they print goes into the log of the first, and the logs of the others name it.
    """
    for job in jobs[1:]:
        with _printing_into(job.log):
            print(f"This seed is trained together with seed {jobs[0].seed}, which has the log.", file=sys.stderr)
    with _printing_into(jobs[0].log):
        failed: dict[str, str] = {}
        wrong = _error(lambda: failed.update(_train_together(jobs)))
        # a run that is trained is left as it is: what remains to be done is to explain it
        return [wrong or failed.get(job.folder) or _error(lambda job=job: perform(job)) for job in jobs]


def _train_together(jobs: Sequence[Job]) -> dict[str, str]:
    """Train jobs that differ in the seed alone, and return the errors of those that have failed, by their folders."""
    from sitar.presets import load_config
    from sitar.training.copies.seeds import train_copies

    first = jobs[0]
    for file in first.imports:
        import_file(file)
    runs = [(load_config(job.preset, job.overrides, job.seed), RunFolder(Path(job.folder))) for job in jobs]
    trained = train_copies(
        runs, overrides=first.overrides, device=first.device, resume=True, progress=first.log is not None
    )
    for one in trained:
        if one.error is not None:
            print(f"Error: seed {one.seed}: {one.error}", file=sys.stderr)
    return {job.folder: str(one.error) for job, one in zip(jobs, trained, strict=True) if one.error is not None}


def _error(work: Callable[[], object]) -> str | None:
    """Do work, and return what went wrong, or None. It is printed too."""
    try:
        work()
    except SitarError as error:
        print(f"Error: {error}", file=sys.stderr)
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return None


def listen_to_sitar() -> None:
    """Have warnings and messages of the library written to standard error, as the command line does."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("sitar").setLevel(logging.INFO)


@contextmanager
def _printing_into(log: str | None) -> Iterator[None]:
    """Send standard output and standard error of this process into a file, those of its libraries too."""
    if log is None:
        yield
        return
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    kept = [os.dup(1), os.dup(2)]
    with open(log, "ab", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
            os.close(before)
