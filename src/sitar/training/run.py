"""Make a run: from settings to a finished run folder."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sitar.config import RunConfig, run_config
from sitar.data import Data, load_data
from sitar.devices import forked_random_state, resolve_device, what_it_cannot_do
from sitar.errors import ConfigError, RunError
from sitar.evaluation.evaluate import evaluate_method
from sitar.evaluation.frozen_encoder import FrozenEncoder
from sitar.evaluation.selection import check_selection
from sitar.methods import build_method, data_for, needs_groups
from sitar.models.pretrained import check_weights
from sitar.models.weights import to_bytes
from sitar.plugins import imported_files
from sitar.presets import load_config
from sitar.progress import ShownProgress
from sitar.registry import DATASETS
from sitar.run_folder import RESULT_VERSION, RunFolder, differences
from sitar.training import advice
from sitar.training.checkpoint import load_state
from sitar.training.environment import describe_environment, describe_plugins
from sitar.training.epoch_progress import ProgressBar
from sitar.training.loop import Loop
from sitar.training.seeding import INIT, seed_everything
from sitar.training.threads import cpu_threads
from sitar.training.trackers import Tracking, check_trackers


def train(
    preset: str,
    *,
    seed: int | None = None,
    overrides: Iterable[str] = (),
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    resume: bool = False,
    progress: bool = True,
) -> RunFolder:
    """Train what a preset (or a .yaml file of your own) describes, evaluate it, and leave a finished run folder.

    `overrides` are "section.key=value" strings. Without `out` the folder is `runs/PRESET/seedN`, with a short hash
    of the overrides. `resume` continues a run that was stopped, exactly; a finished run is left as it is.
    The caller's random state and number of threads are not touched. On a CPU a run takes the number of threads that
    is fastest in a few steps at its start, unless you have set one (`training/threads.py`).
    """
    overrides = list(overrides)
    config = load_config(preset, overrides, seed)
    folder = RunFolder(Path(out) if out is not None else default_folder(config, overrides))
    return train_config(config, folder, device=device, resume=resume, progress=progress, overrides=overrides)


def default_folder(config: RunConfig, overrides: Iterable[str]) -> Path:
    name = Path(config.preset).stem if config.preset.endswith((".yaml", ".yml")) else config.preset
    settings = sorted(overrides)
    suffix = "-" + hashlib.sha256("\n".join(settings).encode()).hexdigest()[:8] if settings else ""
    return Path("runs", name, f"seed{config.seed}{suffix}")


def train_config(
    config: RunConfig,
    folder: RunFolder,
    *,
    device: str = "auto",
    resume: bool = False,
    progress: bool = True,
    overrides: Iterable[str] = (),
) -> RunFolder:
    """Train a complete configuration in `folder`. `overrides` are for the record only: they led to it."""
    train_keeping_data(config, folder, device=device, resume=resume, progress=progress, overrides=overrides)
    return folder


def train_keeping_data(
    config: RunConfig,
    folder: RunFolder,
    *,
    device: str,
    resume: bool,
    progress: bool,
    overrides: Iterable[str],
    on_data: Callable[[Data], None] = lambda data: None,
) -> Data | None:
    """Train as `train_config` does, and return the data that was loaded. None: the run was finished before.

    `on_data` is given the data before training starts.
    """
    if config.refit is not None:
        raise ConfigError("Settings with a section `refit` are those of a run that `sitar refit` makes: leave it out.")
    place = resolve_device(device)
    resuming = resume and folder.is_started
    if resuming:
        recorded = _check_same(config, folder)
        if folder.is_done:
            if recorded != config:
                _move(config, folder, progress)
            return None
    else:
        folder.refuse_used()  # before anything is loaded
    check_trackers(config.train.log)
    check_encoder(config, folder)
    loaded = data_for(config, load_data(config.data, progress))
    check_trainable(config, loaded)
    on_data(loaded)
    made_by = command(config, overrides)
    train_on(config, loaded, folder, device=place, made_by=made_by, resuming=resuming, progress=progress)
    return loaded


def train_on(
    config: RunConfig,
    loaded: Data,
    folder: RunFolder,
    *,
    device: torch.device,
    made_by: str,
    resuming: bool = False,
    progress: bool = False,
) -> None:
    """Train on data that is in memory, as the method may see it, and leave a finished run in `folder`.

    `made_by` is the command that makes the run, for the record.
    """
    advice.warn(config, loaded.task.shape)
    shown, data = ProgressBar(progress), loaded
    with forked_random_state(device), what_it_cannot_do(device):
        seed_everything(config.seed, INIT, 0)
        encoder = None
        if config.model.freeze_encoder:
            encoder = FrozenEncoder(config.model, data.task.shape, device, folder)
            with ShownProgress(progress) as of_features:
                data = encoder.data(data, of_features.watch)
        method = build_method(config, data.task)
        loop = Loop(method, data, config, folder=folder, device=device, shown=shown)
        with folder.lock(), shown, ExitStack() as stack:
            state = load_state(folder) if resuming else None
            if not resuming:
                folder.create(config.to_dict())
            first = _first_environment(folder, data)
            if device.type == "cpu":
                stack.enter_context(cpu_threads(loop.rehearse, _recorded_threads(first)))
            write_environment(folder, config, data, device, made_by, first)
            if encoder is not None and not folder.has_encoder:
                folder.write_encoder(to_bytes(encoder.network.state_dict()))
            tracking = stack.enter_context(Tracking(config, folder, 0 if state is None else state["lines"]))
            loop.run(state, tracking.epoch)
            folder.write_model(to_bytes(method.state_dict()))
            splits, predictions = evaluate_method(method, data, device, shown.evaluating)
            facts = {"selected_epoch": loop.selected_epoch, "seconds": round(loop.elapsed(), 3)}
            finish(folder, config, loaded, splits, predictions, facts)
            tracking.finish(splits)


def command(config: RunConfig, overrides: Iterable[str]) -> str:
    """Return the command that makes this run again."""
    settings = [word for setting in overrides for word in ("--set", setting)]
    imports = [word for file in imported_files() for word in ("--import", file)]
    return shlex.join(["sitar", "train", config.preset, "--seed", str(config.seed), *settings, *imports])


def check_encoder(config: RunConfig, folder: RunFolder) -> None:
    """Say within seconds that the weights of an encoder cannot be had, before anything slow begins."""
    if config.model.encoder is not None and not folder.has_encoder:
        check_weights(config.model.encoder, config.model.encoder_weights)


def check_trainable(config: RunConfig, data: Data) -> None:
    """Refuse settings that the data, or another section, does not allow."""
    check_selection(config.train.selection, data)
    images = len(data.task.shape) == 3
    check_trackers(config.train.log)
    if config.model.encoder is not None and not images:
        raise ConfigError("model.encoder reads images, and this data holds features already. Leave it out.")
    if config.train.augment != "none" and (config.model.freeze_encoder or not images):
        raise ConfigError(
            "train.augment changes images anew in every epoch, and here the model is given features that are computed "
            "once. Use train.augment=none, or model.freeze_encoder=false."
        )


def finish(
    folder: RunFolder,
    config: RunConfig,
    data: Data,
    splits: dict[str, dict[str, Any]],
    predictions: dict[str, np.ndarray],
    facts: Mapping[str, Any],
) -> None:
    """Write result.json and the predictions. `facts` are what only the maker of the run knows, such as the seconds."""
    folder.finish(
        {
            "version": RESULT_VERSION,
            "dataset": config.data.name,
            "method": config.method.name,
            "needs_groups": needs_groups(config),
            "licence": DATASETS.get(config.data.name).licence,
            "preset": config.preset,
            "seed": config.seed,
            "selection": config.train.selection,
            **facts,
            "classes": list(data.classes),
            "attributes": {name: list(values) for name, values in data.attributes.items()},
            "task": data.task.describe(),
            "splits": splits,
        },
        predictions,
    )


def _check_same(config: RunConfig, folder: RunFolder) -> RunConfig:
    """Refuse to resume with other settings, and return those of the run.

    Where the files lie may have changed: data that moved is the same data.
    """
    recorded = run_config(folder.read_config())
    different = differences(config.to_dict(), recorded.to_dict())
    if different:
        raise RunError(
            f"{str(folder.path)!r} holds a run with other settings, so it cannot be resumed with these. Choose another "
            "folder with --out. Nothing was changed. " + "; ".join(different) + "."
        )
    return recorded


def _move(config: RunConfig, folder: RunFolder, progress: bool) -> None:
    """Write down where the data of a finished run lies now, once it is known to be the same data."""
    _first_environment(folder, load_data(config.data, progress))
    with folder.lock():
        folder.write_config(config.to_dict())


def _first_environment(folder: RunFolder, data: Data) -> dict[str, Any] | None:
    """Return what was written when the run was started, or None for a new run. Other data than then is refused."""
    try:
        first = folder.environment()
    except RunError as error:
        raise RunError(
            f"{str(folder.environment_file)!r} is damaged, so the run cannot be resumed. Start again in another folder."
        ) from error
    if first is not None and first["data_checksum"] != data.checksum:
        raise RunError(
            f"The data has changed since the run in {str(folder.path)!r} was started, so it cannot be resumed. "
            "Bring the data back, or start again in another folder."
        )
    return first


def _recorded_threads(first: dict[str, Any] | None) -> int | None:
    """Return how many threads a run on the CPU was started on, or None where there is no such run."""
    if first is None or not str(first.get("device")).startswith("cpu"):
        return None
    threads = first.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None


def write_environment(
    folder: RunFolder,
    config: RunConfig,
    data: Data,
    device: torch.device,
    command: str,
    first: dict[str, Any] | None = None,
) -> None:
    """Write who ran this where. A resumed run keeps its first entry and adds one for each resume.

    Where the data has moved since, the configuration is written anew, so that the run finds it.
    """
    now = {**describe_environment(device), **describe_plugins(config)}
    now |= {"command": command, "seed": config.seed, "data_checksum": data.checksum}
    if first is not None:
        now = {**first, "resumed": [*first.get("resumed", []), now]}
        if run_config(folder.read_config()) != config:
            folder.write_config(config.to_dict())
    folder.write_environment(now)
