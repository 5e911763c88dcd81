"""Train classifiers that do not fall for shortcuts, without being told what the shortcut is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sitar import functional, nn
    from sitar.estimator.classifiers import ShortcutRobustClassifier, SitarClassifier
    from sitar.evaluation.trained_model import load
    from sitar.reporting.frame import frame
    from sitar.sweeps.sweep import sweep
    from sitar.training.run import train

__all__ = [
    "ShortcutRobustClassifier",
    "SitarClassifier",
    "__version__",
    "frame",
    "functional",
    "load",
    "nn",
    "sweep",
    "train",
]
__version__ = "0.1.0"

_HOMES = {
    "ShortcutRobustClassifier": "sitar.estimator.classifiers",
    "SitarClassifier": "sitar.estimator.classifiers",
    "frame": "sitar.reporting.frame",
    "load": "sitar.evaluation.trained_model",
    "sweep": "sitar.sweeps.sweep",
    "train": "sitar.training.run",
}
_ROOMS = ("functional", "nn")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import sitar` needs no torch."""
    if name in _ROOMS:
        return importlib.import_module(f"sitar.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sitar' has no attribute {name!r}")
