"""Planted data are feature vectors with a core and a shortcut that are as strong, bent, spread and large as you say.

A cue shows a sign, that of the core or that of the shortcut, in `parts` places. A place is a pair of features,

    scale * (strength * sign * t + noise),   scale * (strength * t + noise),

with noise of deviation 1, and t = -1 in a share `bend` / 2 of the samples, else 1. So `bend` = 0 is a shift that a
linear model sees, and with `bend` = 1 only the product of both features tells anything. The strength is divided among
the places. All other features are noise. A rotation mixes all features: by nothing if `mixing` is 0, so that each cue
has features of its own, and by a random rotation if it is 1.

The label is the sign of the core, wrong in a share `label_noise`. In training, the shortcut follows the label in a
share `rho` of the samples. `val` and `id_test` are like training. In `val_ood` and `ood_test` the two are independent.

There may be several shortcuts. Each has places of its own, as strong as those of a single one, and follows the label by
a draw of its own. So a sample can agree with some and contradict others. The attribute is the signs of all shortcuts
together, such as `+-`: a group is a label and these signs, and the core AUC holds every shortcut still. A sample is of
the majority if all shortcuts agree with its label (if rho is below 0.5: if none does). Mixed signs go with no class, so
the shortcut AUC leaves them out.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sitar.data.base import DataConfig, Dataset
from sitar.data.sample_table import SampleTable
from sitar.data.types import Data
from sitar.progress import Watch, unwatched
from sitar.registry import DATASETS

INDEPENDENT = 0.5  # share of val_ood and ood_test in which the shortcut follows the label


class PlantedConfig(DataConfig):
    name: Literal["planted"] = "planted"
    refused = {"majority_only": "data.rho=1.0 is the strict regime"}
    label: Literal["core", "shortcut"] = Field(default="core", description="the cue to predict; the other misleads")
    rho: float = Field(default=0.95, ge=0, le=1, description="share of training samples that follow the shortcut")
    label_noise: float = Field(default=0.0, ge=0, le=0.5, description="share of labels that are not those of the core")
    core_strength: float = Field(default=1.5, ge=0, description="shift of the core, in deviations of its noise")
    core_bend: float = Field(default=0.0, ge=0, le=1, description="0: a linear model sees the core; 1: it does not")
    core_parts: int = Field(default=1, ge=1, description="places that show the core; they share its strength")
    core_scale: float = Field(default=1.0, gt=0, description="size of the core's features beside the other ones")
    shortcut_strength: float = Field(default=3.0, ge=0, description="shift of the shortcut")
    shortcut_bend: float = Field(default=0.0, ge=0, le=1, description="0: a linear model sees the shortcut")
    shortcut_parts: int = Field(default=1, ge=1, description="places that show the shortcut")
    shortcut_scale: float = Field(default=1.0, gt=0, description="size of the shortcut's features")
    shortcuts: int = Field(default=1, ge=1, le=6, description="shortcuts; each follows the label by its own draw")
    mixing: float = Field(default=1.0, ge=0, le=1, description="0: each cue has its own features; 1: all are rotated")
    features: int = Field(default=32, ge=4, le=4096, description="number of features, those of the cues included")
    train_size: int = Field(default=4000, ge=2, le=1_000_000, description="samples to train on")
    eval_size: int = Field(default=2000, ge=2, le=1_000_000, description="samples of each other split")
    seed: int = Field(default=0, ge=0, description="of the samples and of the rotation: not the run's seed")

    @model_validator(mode="after")
    def _room(self) -> PlantedConfig:
        needed = 2 * (self.core_parts + self.shortcuts * self.shortcut_parts)
        if needed > self.features:
            of = f" of {self.shortcuts} shortcuts" if self.shortcuts > 1 else ""
            raise ValueError(
                f"core_parts and shortcut_parts{of} need {needed} features, two for each place, and there are "
                f"{self.features}: set features={needed} or more"
            )
        return self

    @model_validator(mode="after")
    def _one_label(self) -> PlantedConfig:
        if self.label == "shortcut" and self.shortcuts > 1:
            raise ValueError(
                f"label=shortcut predicts the one shortcut, but shortcuts={self.shortcuts}: leave one of them out"
            )
        return self


class Cue(NamedTuple):
    """Says how a sign shows in features."""

    strength: float
    bend: float
    parts: int
    scale: float

    def show(self, sign: NDArray[np.int64], random: Generator) -> NDArray[np.float64]:
        """Return the features (sample, 2 * parts) that show a sign, -1 or 1, of each sample."""
        size = (len(sign), self.parts)
        t = np.where(random.random(size) < self.bend / 2, -1, 1)
        shift = self.strength / self.parts**0.5 * np.concatenate([sign[:, None] * t, t], axis=1)
        return self.scale * (shift + random.standard_normal(shift.shape))


@DATASETS.register("planted")
class Planted(Dataset):
    Config = PlantedConfig
    title = "Planted features"
    layout = "nothing, as the samples are drawn"
    setting = None
    needs_files = False
    licence = "none needed: the samples are random numbers"
    citation = "this package"

    @classmethod
    def samples(cls, config: PlantedConfig) -> SampleTable:
        return _draw(config)[0]

    @classmethod
    def load(cls, config: PlantedConfig, watch: Watch = unwatched) -> Data:
        table, x = _draw(config)
        return table.to_data(torch.from_numpy(x), hashlib.sha256(x.tobytes()).hexdigest())


def _draw(config: PlantedConfig) -> tuple[SampleTable, NDArray[np.float32]]:
    """Draw all samples, and what is known of each."""
    random = np.random.default_rng((config.seed, 0))
    follow = {"train": config.rho, "val": config.rho, "id_test": config.rho}
    sizes = {"train": config.train_size} | dict.fromkeys(("val", "val_ood", "id_test", "ood_test"), config.eval_size)
    split = np.repeat(list(sizes), list(sizes.values()))
    rho = np.array([follow.get(name, INDEPENDENT) for name in sizes]).repeat(list(sizes.values()))
    core = random.choice([-1, 1], len(split))
    label = np.where(random.random(len(split)) < config.label_noise, -core, core)
    agree = random.random((len(split), config.shortcuts)) < rho[:, None]
    shortcuts = np.where(agree, label[:, None], -label[:, None])
    shortcut = Cue(config.shortcut_strength, config.shortcut_bend, config.shortcut_parts, config.shortcut_scale)
    cues = [
        Cue(config.core_strength, config.core_bend, config.core_parts, config.core_scale).show(core, random),
        *(shortcut.show(sign, random) for sign in shortcuts.T),
    ]
    rest = config.features - sum(cue.shape[1] for cue in cues)
    x = np.concatenate([*cues, random.standard_normal((len(split), rest))], axis=1)
    x = (x @ _rotation(config, np.random.default_rng((config.seed, 1)))).astype(np.float32)
    places = 2 ** np.arange(config.shortcuts)[::-1]  # so that values are in the order of itertools.product
    told = {"core": (label > 0).astype(np.int64), "shortcut": (shortcuts > 0) @ places}
    other = "shortcut" if config.label == "core" else "core"
    values = tuple(f"{other} {''.join(signs)}" for signs in itertools.product("-+", repeat=config.shortcuts))
    last = len(values) - 1
    follows = frozenset({(0, 0), (1, last)} if config.rho >= INDEPENDENT else {(0, last), (1, 0)})
    classes = (f"{config.label} -", f"{config.label} +")
    return SampleTable(np.arange(len(x)), told[config.label], split, classes, told[other], other, values, follows), x


def _rotation(config: PlantedConfig, random: Generator) -> NDArray[np.float64]:
    """Return a rotation that is the identity without mixing, and mixes all features with a mixing of 1.

    A skew-symmetric matrix generates it. Its angles, up to 2.8 in most draws, grow with the mixing.
    """
    from scipy.linalg import expm  # other runs need not import scipy

    if config.mixing == 0:
        return np.eye(config.features)
    matrix = random.standard_normal((config.features, config.features))
    return np.asarray(expm(config.mixing * (matrix - matrix.T) / config.features**0.5), dtype=np.float64)
