"""Train classifiers that do not fall for shortcuts, without being told what the shortcut is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sitar.evaluation.trained_model import load
    from sitar.reporting.frame import frame
    from sitar.training.run import train

__all__ = ["__version__", "frame", "load", "train"]
__version__ = "0.1.0.dev0"

_HOMES = {
    "frame": "sitar.reporting.frame",
    "load": "sitar.evaluation.trained_model",
    "train": "sitar.training.run",
}


def __getattr__(name: str) -> Any:
    """Import `train`, `load` and `frame` when they are first used, so that `import sitar` needs no torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sitar' has no attribute {name!r}")
