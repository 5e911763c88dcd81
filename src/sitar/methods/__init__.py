"""Every method has one file. A method yields phases. Training runs them and knows nothing else of the method."""

import math
from dataclasses import replace

from sitar.config import RunConfig
from sitar.data.nuisances import read_bank, read_nuisances
from sitar.data.rows import Stored
from sitar.data.types import Data, Task
from sitar.data.unlabelled import read_unlabelled
from sitar.errors import ConfigError
from sitar.methods import (  # noqa: F401  (register themselves)
    ace,
    afr,
    chroma_vae,
    curvature,
    cvar_dro,
    dbat,
    dfr,
    diffusion,
    divdis,
    erm,
    group_dro,
    irm,
    jacobian,
    jtt,
    lff,
    sitar,
    sitar_auto,
    vae,
    vrex,
)
from sitar.methods.base import FitPhase, GradientPhase, Method, Objective
from sitar.methods.refit import Refitted
from sitar.models.build import with_latent_dim
from sitar.progress import Watch, unwatched
from sitar.registry import METHODS

__all__ = [
    "FitPhase",
    "GradientPhase",
    "Method",
    "Objective",
    "build_method",
    "data_for",
    "needs_groups",
    "needs_unlabelled",
]

EVALUATION_VALUES = 2**25  # of inputs that are evaluated at a time: large images in smaller batches


def needs_groups(config: RunConfig) -> bool:
    """Return whether the method that `config` names is given group labels of the training samples."""
    return METHODS.get(config.method.name).needs_groups


def needs_unlabelled(config: RunConfig) -> bool:
    """Return whether the method that `config` names is given unlabelled inputs, with these settings."""
    return METHODS.get(config.method.name).takes_unlabelled(config.method)


def data_for(
    config: RunConfig,
    data: Data,
    *,
    to_learn: bool = True,
    unlabelled: Stored | None = None,
    watch: Watch = unwatched,
) -> Data:
    """Return `data` as the method that `config` names may see it. This is the one gate to all that is not x and y.

    It has groups only if the method declares to need them. It has unlabelled inputs only if the method learns from
    them: these are read here, unless they are `unlabelled`, and in memory already. It has the nuisances that the
    settings name, or else, for images, the bank that they ask for. Without `to_learn` these last two are left where
    they are: a trained method does not need them.
    """
    groups, more = needs_groups(config), to_learn and needs_unlabelled(config)
    if groups and more:
        raise ConfigError(
            f"{config.method.name} asks for groups and for unlabelled inputs, and a batch has one of them at most: "
            "declare needs_groups or needs_unlabelled, not both."
        )
    names = getattr(config.method, "nuisances", ()) if to_learn else ()
    nuisances = read_nuisances(names, config.data, data) if names else None
    if to_learn and not names and getattr(config.method, "bank", False) and data.train.x.ndim == 4:
        nuisances = read_bank(config.data, data)
    if groups:
        data = data.with_groups()
    if more:
        data = data.with_unlabelled(read_unlabelled(config.data, data, watch) if unlabelled is None else unlabelled)
    return replace(data, nuisances=nuisances)


def build_method(config: RunConfig, task: Task) -> Method:
    """Build the method that `config` names, freshly initialised from the current random state.

    If the settings have a section `refit`, it has a last layer of its own.
    """
    method: Method = METHODS.get(config.method.name)(config.method, with_latent_dim(config.model, task), task)
    method.evaluation_batch = max(1, min(method.evaluation_batch, EVALUATION_VALUES // math.prod(task.shape)))
    return method if config.refit is None else Refitted(method, config.refit.features, task.num_classes)
