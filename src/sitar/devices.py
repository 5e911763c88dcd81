"""Choose the device that torch computes on, by the name that a user gives."""

from __future__ import annotations

import platform

import torch

from sitar.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """Return a device by name. "auto" is the first GPU, or the CPU if there is none."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise ConfigError(
            f"Device {name!r} cannot be used here. Known: {', '.join(['auto', 'cpu', *gpus])}."
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"Device {name!r} is not supported. Use auto, cpu or cuda.")
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else device


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"
