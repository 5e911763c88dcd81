"""Scripts outside the package as modules, whose functions tests call."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def script(path: str) -> ModuleType:
    """Import a script by its path below the repository, such as reproduce/run.py. Scripts beside it can be imported."""
    if str((ROOT / path).parent) not in sys.path:
        sys.path.append(str((ROOT / path).parent))
    spec = importlib.util.spec_from_file_location(path.removesuffix(".py").replace("/", "_"), ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its data classes look for their types
    spec.loader.exec_module(module)
    return module
