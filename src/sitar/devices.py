"""Choose the device that torch computes on, by the name that a user gives."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sitar.allocator import keep_freed_memory
from sitar.errors import ConfigError, first_line

MPS = "mps"  # the GPU of a Mac


class _Turn:
    """The thread that draws random numbers holds this lock, since torch's generators are those of the process."""

    lock = threading.RLock()

    @classmethod
    def begin_again(cls) -> None:
        """Let a forked process draw: it has no copy of the thread that held the lock, and would wait for ever."""
        cls.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Turn.begin_again)


def resolve_device(name: str) -> torch.device:
    """Return a device by name. "auto" is the first GPU, that of a Mac (mps), or the CPU if there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else MPS if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        gpus += [MPS] if torch.backends.mps.is_available() else []
        raise ConfigError(
            f"Device {name!r} cannot be used here. Known: {', '.join(['auto', 'cpu', *gpus])}."
        ) from error
    if device.type not in ("cpu", "cuda", MPS):
        raise ConfigError(f"Device {name!r} is not supported. Use auto, cpu, cuda or mps.")
    if device.type == "cpu":
        keep_freed_memory()
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else device


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"


@contextmanager
def forked_random_state(device: torch.device | None = None) -> Iterator[None]:
    """Put the caller's random state back at the end: on the CPU and, for work on a device, on every GPU.

    Threads take turns. Two at once would draw from each other's numbers, and neither would draw what it draws alone.
    """
    with _Turn.lock:
        kept = torch.mps.get_rng_state() if device is not None and device.type == MPS else None
        try:
            with torch.random.fork_rng(devices=[] if device is None else range(torch.cuda.device_count())):
                yield
        finally:
            if kept is not None:
                torch.mps.set_rng_state(kept)


NO_MEMORY = (  # what torch says in a RuntimeError
    "out of memory", "can't allocate memory", "not enough memory", "storage size calculation overflowed",
)  # fmt: skip


@contextmanager
def what_it_cannot_do(device: torch.device) -> Iterator[None]:
    """Say what to do where the memory is too small, or the GPU of a Mac lacks an operation or a type.

    Other errors are left as they are.
    """
    try:
        yield
    except (TypeError, RuntimeError, MemoryError) as error:  # of the second is NotImplementedError
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
            raise ConfigError(
                f"The memory of {device} is too small for this model and batch ({str(error).strip()[:200]}). Take a "
                "smaller model (section model), or a smaller train.batch_size."
            ) from error
        if device.type != MPS or MPS not in str(error).lower():
            raise
        raise ConfigError(
            f"The GPU of this Mac cannot compute this ({first_line(error)}). Use --device cpu."
        ) from error
