"""Describe where a run happened: commit, versions, device, and what came from other packages and files."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from sitar.config import RunConfig
from sitar.devices import device_name
from sitar.plugins import imported_files
from sitar.registry import DATASETS, METHODS
from sitar.training import tensor_float

PACKAGES = ("sitar", "torch", "timm", "numpy", "pillow", "scikit-learn", "pydantic", "safetensors")
EXTRAS = {
    "accelerate": "sitar[accelerate]",
    "diffusers": "sitar[diffusion]",
    "huggingface_hub": "sitar[hub]",
    "onnx": "sitar[onnx]",
    "onnxruntime": "sitar[onnx]",
    "onnxscript": "sitar[onnx]",
    "fairlearn": "sitar[fairlearn]",
    "mlflow": "sitar[mlflow]",
    "optuna": "sitar[optuna]",
    "pandas": "sitar[pandas]",
    "pyarrow": "sitar[parquet]",
    "pydicom": "sitar[medical]",
    "ray": "sitar[ray]",
    "starlette": "sitar[ask]",
    "tensorboard": "sitar[tensorboard]",
    "tifffile": "sitar[medical]",
    "uvicorn": "sitar[ask]",
    "wandb": "sitar[wandb]",
}  # package: what to install to have it


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Describe the machine. On a GPU it also matters for which operations the process uses TF32."""
    described = {
        "commit": commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
    }
    return described | {"tf32": tensor_float.used()} if device.type == "cuda" else described


def describe_plugins(config: RunConfig) -> dict[str, Any]:
    """Say which package or file the dataset and the method of a run come from, if they are not part of this library."""
    sources = {
        "dataset": DATASETS.added_by(config.data.name),
        "method": METHODS.added_by(config.method.name),
    }
    return {
        "plugins": {kind: source for kind, source in sources.items() if source is not None},
        "imports": imported_files(),
    }


def versions() -> dict[str, str | None]:
    """Return the version of every package that sitar needs, and of the installed extras. A missing package has None."""
    extras = {name: version for name in EXTRAS if (version := _version(name)) is not None}
    return {name: _version(name) for name in PACKAGES} | extras


def commit() -> str | None:
    """Return the commit of the source that runs, with "-dirty" if it was changed. Return None outside a checkout."""
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
