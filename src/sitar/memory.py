"""Say before slow work begins that it needs more memory than there is."""

from __future__ import annotations

from pathlib import Path

from sitar.errors import ConfigError

MEMINFO = Path("/proc/meminfo")
LIMIT, USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def free_memory() -> int | None:
    """Return the bytes that a program can still take, within the limit of a container; None: they are not known."""
    try:
        lines = MEMINFO.read_text(encoding="utf-8").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
    try:
        return min(free, int(LIMIT.read_text()) - int(USED.read_text()))
    except (OSError, ValueError):  # there is no container, or it has no limit
        return free


def check_memory(needed: int, what: str, instead: str) -> None:
    """Refuse `what`, a clause with a verb, where it needs more memory than is free. `instead` says what to do."""
    free = free_memory()
    if free is not None and needed > free:
        raise ConfigError(
            f"{what}, which takes about {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free. {instead}"
        )
