"""Tiny real runs, data that is read once, and the parts of two runs that must agree."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

import sitar.data
import sitar.evaluation.trained_model
import sitar.training.run
from helpers import toys
from sitar.config import RunConfig, run_config
from sitar.data.types import Data, TrainBatch, TrainSplit
from sitar.methods import FitPhase, GradientPhase, Method, build_method, data_for
from sitar.run_folder import RunFolder
from sitar.training.run import train_config

TINY_MODEL = {"latent_dim": 4, "channels": [4], "hidden": 8}
TINY_DATA = {"name": "color_mnist", "image_size": 14, "train_size": 300, "eval_size": 400}
TINY_METHOD = {
    "diffusion": {"unet_channels": [4], "layers_per_block": 1, "scoring_pairs": 2}
}  # whose defaults are large
TINY_TRAIN = {"epochs": 3, "batch_size": 64, "checkpoint_seconds": 0}
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
    """A complete configuration; `options` are the method's own."""
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


def fresh(config: RunConfig, data: Data, seed: int = 0) -> Method:
    """An untrained method for `data`, of which it sees what it may."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_method(config, data_for(config, data).task)


def gradient_phases(method: Method, split: TrainSplit) -> Iterator[GradientPhase]:
    """The method's gradient phases in order; what lies between them (fits) is run, as training would."""
    for phase in method.phases():
        if isinstance(phase, FitPhase):
            method.eval()
            phase.fit(split)
            method.train()
        else:
            yield phase


def batch_of(split: TrainSplit, phase: GradientPhase | None = None, size: int = 64) -> TrainBatch:
    """The first samples of a phase's view of the data."""
    indices = torch.arange(len(split)) if phase is None or phase.indices is None else phase.indices.cpu()
    index = indices[:size].to(split.x.device)
    return split.batch(index)


def weights(folder: RunFolder) -> dict[str, Tensor]:
    return load_file(folder.model_file)


def metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """metrics.jsonl without the clock."""
    lines = [json.loads(line) for line in folder.metrics_file.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def predictions(folder: RunFolder) -> dict[str, np.ndarray]:
    with np.load(folder.predictions_file) as arrays:
        return dict(arrays)


def assert_same_tensors(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> None:
    """Bit for bit; names of the tensors that differ are in the message."""
    assert a.keys() == b.keys()
    different = [name for name in a if a[name].dtype != b[name].dtype or not torch.equal(a[name], b[name])]
    assert not different, f"tensors that differ: {different}"


def assert_same_run(a: RunFolder, b: RunFolder) -> None:
    """Everything that two runs of one configuration must share, bit for bit."""
    assert a.is_done
    assert b.is_done
    assert_same_tensors(weights(a), weights(b))
    assert metrics(a) == metrics(b)
    ours, theirs = predictions(a), predictions(b)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name, strict=True)
    mine, yours = (json.loads(folder.result_file.read_text()) for folder in (a, b))
    mine.pop("seconds"), yours.pop("seconds")
    assert mine == yours
    assert a.read_config() == b.read_config()


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


class Stop(BaseException):
    """A process that ends here. No handler of Exception may catch it."""


def writes(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> int:
    """Run `call` and count the changes it makes to files that matter; stop it right before change number `stop_at`.

    Files change by a rename or by a line appended to the metrics, so that stopping before each of them (and thereby
    after the one before) visits every state that a killed process can leave, but for files with temporary names.
    """
    count = 0

    def counted(function: Callable[..., Any], changes: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            if changes(*arguments):
                count += 1
                if count - 1 == stop_at:
                    raise Stop
            return function(*arguments, **keywords)

        return wrapper

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(os, "mkdir", counted(os.mkdir, lambda path, *_: not os.path.exists(path)))
        patch.setattr(RunFolder, "append_metrics", counted(RunFolder.append_metrics))
        patch.setattr(Path, "unlink", counted(Path.unlink, lambda path: path.exists() and path.name[0] != "."))
        call()
    return count


_read = functools.lru_cache(sitar.data.load_data)


def load_data(config: Any, progress: bool = False) -> Data:
    """As sitar.data.load_data."""
    return sitar.data.load_data(config, progress) if config.name in toys.DATA_TOYS else _read(config)
