"""Where a run happened: commit, versions, device."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from sitar.errors import ConfigError

PACKAGES = ("sitar", "torch", "timm", "numpy", "pillow", "scikit-learn", "pydantic", "safetensors")
EXTRAS = {
    "diffusers": "sitar[diffusion]",
    "pyarrow": "sitar[parquet]",
    "pydicom": "sitar[medical]",
    "tifffile": "sitar[medical]",
}  # package: what to install to have it


def resolve_device(name: str) -> torch.device:
    """A device by name; "auto" takes the first GPU, else the CPU."""
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


def describe_environment(device: torch.device) -> dict[str, Any]:
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
    }


def versions() -> dict[str, str | None]:
    """Of what sitar needs, and of the extras that are installed; None where it is missing."""
    extras = {name: found for name in EXTRAS if (found := _version(name)) is not None}
    return {name: _version(name) for name in PACKAGES} | extras


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


def commit() -> str | None:
    """The commit of the source that runs, "-dirty" when it was changed since; None outside a checkout."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--", str(here.parent)],
            cwd=here, capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
