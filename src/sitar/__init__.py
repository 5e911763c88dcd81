"""Train classifiers that do not fall for shortcuts, without being told what the shortcut is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sitar.estimator.classifiers import ShortcutRobustClassifier, SitarClassifier
    from sitar.evaluation.trained_model import load
    from sitar.training.run import train

__all__ = ["ShortcutRobustClassifier", "SitarClassifier", "__version__", "load", "train"]
__version__ = "0.1.0.dev0"

_HOMES = {
    "train": "sitar.training.run",
    "load": "sitar.evaluation.trained_model",
    "SitarClassifier": "sitar.estimator.classifiers",
    "ShortcutRobustClassifier": "sitar.estimator.classifiers",
}


def __getattr__(name: str) -> Any:
    """Import what is public when it is first used, so that `import sitar` needs no torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sitar' has no attribute {name!r}")
