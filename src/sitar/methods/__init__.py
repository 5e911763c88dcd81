"""Every method has one file. A method yields phases. Training runs them and knows nothing else of the method."""

import math

from sitar.config import RunConfig
from sitar.data.types import Data, Task
from sitar.methods import (  # noqa: F401  (register themselves)
    afr,
    chroma_vae,
    curvature,
    cvar_dro,
    dfr,
    diffusion,
    erm,
    group_dro,
    irm,
    jacobian,
    jtt,
    lff,
    sitar,
    vae,
    vrex,
)
from sitar.methods.base import FitPhase, GradientPhase, Method, Objective
from sitar.methods.refit import Refitted
from sitar.models.build import with_latent_dim
from sitar.registry import METHODS

__all__ = ["FitPhase", "GradientPhase", "Method", "Objective", "build_method", "data_for", "needs_groups"]

EVALUATION_VALUES = 2**25  # of inputs that are evaluated at a time: large images in smaller batches


def needs_groups(config: RunConfig) -> bool:
    """Return whether the method that `config` names is given group labels of the training samples."""
    return METHODS.get(config.method.name).needs_groups


def data_for(config: RunConfig, data: Data) -> Data:
    """Return `data` as the method that `config` names may see it: with groups only if it declares to need them."""
    return data.with_groups() if needs_groups(config) else data


def build_method(config: RunConfig, task: Task) -> Method:
    """Build the method that `config` names, freshly initialised from the current random state.

    If the settings have a section `refit`, it has a last layer of its own.
    """
    method: Method = METHODS.get(config.method.name)(config.method, with_latent_dim(config.model, task), task)
    method.evaluation_batch = max(1, min(method.evaluation_batch, EVALUATION_VALUES // math.prod(task.shape)))
    return method if config.refit is None else Refitted(method, config.refit.features, task.num_classes)
