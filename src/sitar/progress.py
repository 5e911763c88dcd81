"""Show how far slow work is: by a bar on a terminal, and elsewhere by a line now and then. Quick work shows nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PATIENCE_SECONDS = 2.0  # work that takes no longer is not shown
LINE_SECONDS = 15.0  # between two lines where there is no terminal
MEASURED_SECONDS = 1.0  # of work that must be done before a line says how long the rest takes

Watch = Callable[[str, int], Callable[[int], None]]
"""It is told what begins and how much there is to do, and returns a function that is told how much is done."""


def unwatched(name: str, total: int) -> Callable[[int], None]:
    """Watch nothing."""
    return lambda done: None


class ShownProgress:
    """This progress is shown on standard error, for slow work only. With `enabled=False` nothing is shown."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.console = Console(stderr=True)
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def watch(self, name: str, total: int) -> Callable[[int], None]:
        """Begin to show work, such as `"CelebA: images decoded"`. `total` is how much there is to do."""
        began, pace = time.monotonic(), _Pace(total)
        show = self._in_a_bar(name, total) if self.console.is_terminal else _in_lines(name, total, pace)

        def tell(done: int) -> None:
            pace.note(done)
            if self.enabled and time.monotonic() - began >= PATIENCE_SECONDS:
                show(done)

        return tell

    def _in_a_bar(self, name: str, total: int) -> Callable[[int], None]:
        tasks = []

        def show(done: int) -> None:
            if self.bar is None:
                columns = (
                    TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                    TextColumn("left"), TimeRemainingColumn(),
                )  # fmt: skip
                self.bar = Progress(*columns, console=self.console, transient=True)
                self.bar.start()
            if not tasks:
                tasks.append(self.bar.add_task(name, total=total))
            self.bar.update(tasks[0], completed=done)

        return show


def _in_lines(name: str, total: int, pace: _Pace) -> Callable[[int], None]:
    last = -float("inf")

    def show(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_SECONDS and done:
            last = now
            left = pace.left(done)
            rest = "" if left is None else f", {left:.0f} s left"
            print(f"{name}: {done:,}/{total:,}{rest}", file=sys.stderr, flush=True)

    return show


class _Pace:
    """The pace is that of all pieces but the first, which also waits for a start that the others do not have."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.first: tuple[float, int] | None = None

    def note(self, done: int) -> None:
        """Note when the first piece was done."""
        if done and self.first is None:
            self.first = time.monotonic(), done

    def left(self, done: int) -> float | None:
        """Return how many seconds the rest takes, or None where too little is done to tell."""
        if done == self.total:
            return 0.0
        if self.first is None or (seconds := time.monotonic() - self.first[0]) < MEASURED_SECONDS:
            return None
        pieces = done - self.first[1]
        return seconds / pieces * (self.total - done) if pieces else None
