"""Processes of a sweep that are forked, not started: a new one imports torch for seconds, each time.

They are processes of their own with a group of their own. A kill is a kill. tests/smoke/test_sweep.py kills those that
are really started.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from helpers.bad_disks import Fault
from sitar.sweeps.engines import local, worker


class Forked:
    """What `subprocess.Popen` would have started for sitar.sweeps.engines.local."""

    def __init__(self, command: list[str], *, env: dict[str, str], **_: Any) -> None:
        assert command[-1] == worker.__name__
        orders, ours = os.pipe()
        theirs, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.setpgid(0, 0)
                os.dup2(orders, 0), os.dup2(answers, 1)
                self._close_all()
                os.environ.clear()
                os.environ.update(env)
                worker.work()
                status = 0
            finally:
                os._exit(status)
        os.close(orders), os.close(answers)
        self.stdin, self.stdout = os.fdopen(ours, "w"), os.fdopen(theirs)
        self.status: int | None = None

    def _close_all(self) -> None:
        """Close what only the first process has: ends of pipes to others, which would never see its end."""
        for handle in map(int, os.listdir("/dev/fd")):
            if handle > 2 and (Fault.current is None or handle != Fault.current.handle):
                try:
                    os.close(handle)
                except OSError:  # the one that listed them
                    continue

    def poll(self) -> int | None:
        if self.status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if ended else None
        return self.status

    def wait(self, timeout: float = 60) -> int:
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(worker.__name__, timeout)
            time.sleep(0.005)
        return status


@contextmanager
def forked_workers() -> Iterator[None]:
    """Sweeps fork their processes for now."""
    kept = local.subprocess
    local.subprocess = SimpleNamespace(Popen=Forked, PIPE=-1, TimeoutExpired=subprocess.TimeoutExpired)  # type: ignore[assignment]
    try:
        yield
    finally:
        local.subprocess = kept
