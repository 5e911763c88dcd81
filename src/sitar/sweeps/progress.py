"""Show how far a sweep is: a bar on a terminal, and a line for each run that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sitar.errors import RunError
from sitar.run_folder import RunFolder
from sitar.sweeps.engines.job import Ended

LINE_SECONDS = 60.0  # between two lines about runs that still train, where there is no terminal


class SweepProgress:
    """This progress is shown on standard error. With `enabled=False` nothing is shown."""

    def __init__(self, enabled: bool, metric: str, total: int) -> None:
        self.enabled = enabled
        self.metric = metric
        self.console = Console(stderr=True)
        self.done, self.total = 0, total
        self.epochs: dict[str, int] = {}
        self.last_line = time.monotonic()
        columns = (
            TextColumn("{task.fields[note]}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
        )  # fmt: skip
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self._on_a_terminal())
        self.task = self.bar.add_task("runs", note="", total=None)

    def _on_a_terminal(self) -> bool:
        return self.enabled and self.console.is_terminal

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def begin(self, epochs: Mapping[str, int]) -> None:
        """Begin with these runs: the number of epochs of each by its folder."""
        self.epochs = dict(epochs)
        self.look()

    def look(self) -> None:
        """Look how far the runs are that train now. Their folders tell."""
        if not self.enabled:
            return
        part, running = 0.0, 0
        for path, epochs in self.epochs.items():
            folder = RunFolder(Path(path))
            if folder.is_started and not folder.is_done:
                running += 1
                part += min(_epochs_done(folder) / epochs, 0.99)
        note = f"{self.done}/{self.total} runs, {running} training"
        self.bar.update(self.task, completed=self.done + part, total=self.total, note=note)
        if not self._on_a_terminal() and time.monotonic() - self.last_line >= LINE_SECONDS:
            self.last_line = time.monotonic()
            print(f"{note}, {part:.1f} of them done", file=sys.stderr, flush=True)

    def ended(self, ended: Ended, name: str, value: float | None) -> None:
        """Show the end of a run: its value on `val`, or what went wrong."""
        self.done += 1
        self.epochs.pop(ended.job.folder, None)
        if self.enabled:
            self.last_line = time.monotonic()
            said = (
                f"failed: {ended.error}"
                if ended.error
                else ""
                if value is None
                else f"val {self.metric} {100 * value:.1f} %"
            )
            self.say(f"{self.done}/{self.total} {name}  {said}".rstrip())
        self.look()

    def say(self, text: str) -> None:
        if self._on_a_terminal():
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self.enabled:
            print(text, file=sys.stderr, flush=True)


def _epochs_done(folder: RunFolder) -> int:
    try:
        return len(folder.metrics())
    except (OSError, RunError):  # it is being written
        return 0
