"""Methods: one file each. A method yields phases; training runs them and knows nothing else of it."""

from sitar.config import RunConfig
from sitar.data.base import Task
from sitar.methods import erm, sitar  # noqa: F401  (register themselves)
from sitar.methods.base import FitPhase, GradientPhase, Method, Objective
from sitar.registry import METHODS

__all__ = ["FitPhase", "GradientPhase", "Method", "Objective", "build_method"]


def build_method(config: RunConfig, task: Task) -> Method:
    """The method that `config` names, freshly initialised from the current random state."""
    return METHODS.get(config.method.name)(config.method, config.model, task)  # type: ignore[attr-defined]
