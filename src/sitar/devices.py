"""Choose the device that torch computes on, by the name that a user gives."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sitar.allocator import keep_freed_memory
from sitar.errors import ConfigError, first_line

MPS = "mps"  # the GPU of a Mac


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
def forked_random_state(device: torch.device) -> Iterator[None]:
    """Put the caller's random state back at the end, on the CPU and on every GPU."""
    kept = torch.mps.get_rng_state() if device.type == MPS else None
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
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
