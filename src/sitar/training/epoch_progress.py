"""Show the progress of training: as a bar on a terminal, and elsewhere as a plain line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

from sitar.progress import LINE_SECONDS


class ProgressBar:
    """A progress bar shows a run's epochs on standard error. With `enabled=False` it shows nothing."""

    def __init__(self, enabled: bool = True, processes: int = 1) -> None:
        self.enabled = enabled
        self.processes = processes  # that share an evaluation
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.name, self.epochs, self.steps = "", 0, 1
        self.started = self.last_line = 0.0

    def __enter__(self) -> Self:
        if self.enabled and self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"),
                TimeElapsedColumn(), TextColumn("left"), Remaining(), TextColumn("{task.fields[note]}"),
            )  # fmt: skip
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def begin_phase(self, name: str, epochs: int, steps: int, done: int) -> None:
        self.name, self.epochs, self.steps = name, epochs, steps
        self.started = time.perf_counter()
        self.first, self.last_line = done, self.started
        if self.bar:
            self.task = self.bar.add_task(name, total=epochs, completed=done, note="")

    def step(self, epoch: int, step: int) -> None:
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=round(epoch + step / self.steps, 2))

    def evaluating(self, split: str, total: int) -> Callable[[int], None]:
        """Return a function that is told how many samples of a split are done, so that slow scoring shows progress."""
        began, total = time.perf_counter(), -(-total // self.processes)

        def watch(done: int) -> None:
            now = time.perf_counter()
            note = f"evaluating {split} {done:,}/{total:,}"
            if self.bar and self.task is not None:
                self.bar.update(self.task, note=note)
            elif self.enabled and now - max(self.last_line, began) >= LINE_SECONDS:
                self.last_line = now
                print(f"{note}, {(now - began) / done * (total - done):.0f} s left", file=sys.stderr, flush=True)

        return watch

    def epoch(self, line: dict[str, Any]) -> None:
        """Show the end of an epoch, with what was logged of it."""
        done = line["epoch"]
        note = f"loss {line['loss']:.4g}" + "".join(
            f"  {split} {100 * metrics['average']:.1f} %"
            for split, metrics in line.items()
            if isinstance(metrics, dict) and metrics.get("average") is not None
        )
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=done, note=note)
        elif self.enabled:
            now = time.perf_counter()
            if now - self.last_line >= LINE_SECONDS:
                self.last_line = now
                left = (now - self.started) / (done - self.first) * (self.epochs - done)
                print(
                    f"{self.name}: epoch {done}/{self.epochs}, {note}, {left:.0f} s left", file=sys.stderr, flush=True
                )
