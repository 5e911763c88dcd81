"""Tiny real runs, data that is read once, and the parts of two runs that must agree."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import sitar.data
import sitar.evaluation.trained_model
import sitar.training.run
from helpers import toys
from sitar.config import RunConfig, run_config
from sitar.data.types import Data
from sitar.registry import METHODS
from sitar.run_folder import RunFolder
from sitar.testing.interrupt import Stop, writes  # noqa: F401  (tests have them from here, too)
from sitar.testing.methods import batch_of, fresh, gradient_phases  # noqa: F401
from sitar.testing.same_run import assert_same_run, assert_same_tensors, metrics, predictions, weights  # noqa: F401
from sitar.training.run import train_config

TINY_MODEL = {"latent_dim": 4, "channels": [4], "hidden": 8}
TINY_DATA = {"name": "color_mnist", "image_size": 14, "train_size": 300, "eval_size": 400}
TINY_METHOD = {
    "diffusion": {"unet_channels": [4], "layers_per_block": 1, "scoring_pairs": 2, "mlp_width": 8}
}  # whose defaults are large
TINY_TRAIN = {"epochs": 3, "batch_size": 64, "checkpoint_seconds": 0}
FULL = {
    "selection": "val_average",
    "patience": 50,
    "schedule": "cosine",
    "warmup_epochs": 1.5,
    "gradient_clip": 5.0,
    "average_epochs": 3,
}  # all that has a state
TOY_DATA = {"name": "toy_blobs"}
TOY_TRAIN = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, "checkpoint_seconds": 0}


def settings(
    method: str,
    *,
    data: Mapping[str, Any] = TINY_DATA,
    model: Mapping[str, Any] = TINY_MODEL,
    train: Mapping[str, Any] = TINY_TRAIN,
    seed: int = 0,
    **options: Any,
) -> RunConfig:
    """A complete configuration; `options` are the method's own. A method that needs unlabelled inputs has val's."""
    if METHODS.get(method).needs_unlabelled and data.get("unlabelled") is None:
        data = {**data, "unlabelled": "val"}
    sections = {
        "data": dict(data),
        "model": dict(model),
        "method": {"name": method, **TINY_METHOD.get(method, {}), **options},
        "train": dict(train),
    }
    return run_config({**sections, "seed": seed})


def toy(method: str, *, train: Mapping[str, Any] | None = None, **rest: Any) -> RunConfig:
    """As `settings`, on toy data; `train` is added to the toy defaults."""
    return settings(method, train={**TOY_TRAIN, **(train or {})}, **{"data": TOY_DATA, **rest})


def run(config: RunConfig, path: Path, *, resume: bool = False, device: str = "cpu") -> RunFolder:
    return train_config(config, RunFolder(path), device=device, resume=resume, progress=False)


def write_settings(config: RunConfig, path: Path) -> Path:
    """A .yaml file that `sitar.train` takes in place of a preset."""
    raw = config.to_dict()
    del raw["preset"]
    path.write_text(yaml.safe_dump(raw))
    return path


def assert_close_runs(a: RunFolder, b: RunFolder, relative: float = 1e-4) -> None:
    """For devices that do not add in one order: weights as one vector, and the loss of every epoch."""
    ours, theirs = weights(a), weights(b)
    assert ours.keys() == theirs.keys()
    difference = math.sqrt(sum(float((ours[key].double() - theirs[key].double()).square().sum()) for key in ours))
    size = math.sqrt(sum(float(theirs[key].double().square().sum()) for key in theirs))
    assert difference <= relative * size
    for one, two in zip(metrics(a), metrics(b), strict=True):
        assert one.keys() == two.keys()
        assert (one["phase"], one["epoch"]) == (two["phase"], two["epoch"])
        assert one["loss"] == pytest.approx(two["loss"], rel=relative, abs=1e-6)


def hashes(path: Path) -> dict[str, str]:
    """Content of every file below a folder, empty folders included."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder"
        for file in sorted(path.rglob("*"))
    }


_read = functools.lru_cache(sitar.data.load_data)


def load_data(config: Any, progress: bool = False) -> Data:
    """As sitar.data.load_data."""
    return sitar.data.load_data(config, progress) if config.name in toys.DATA_TOYS else _read(config)
