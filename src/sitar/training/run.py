"""A run from settings to a finished run folder."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sitar.config import RunConfig, load_config
from sitar.data import Data, load_data
from sitar.devices import resolve_device
from sitar.errors import ConfigError, RunError
from sitar.evaluation.evaluate import evaluate_method
from sitar.evaluation.frozen_encoder import FrozenEncoder
from sitar.evaluation.selection import check_selection
from sitar.methods import build_method, data_for, needs_groups
from sitar.models.weights import save_weights
from sitar.run_folder import RESULT_VERSION, RunFolder, differences, to_json, write_atomic
from sitar.training.checkpoint import load_state
from sitar.training.environment import describe_environment
from sitar.training.loop import Loop
from sitar.training.progress import ProgressReport
from sitar.training.seeding import INIT, seed_everything


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

    `overrides` are "section.key=value" strings. Without `out` the folder is runs/<preset>/seed<N>, with a short hash
    of the overrides. `resume` continues a run that was stopped, exactly; a finished run is left as it is.
    The caller's random state is not touched.
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
    place = resolve_device(device)
    resuming = resume and folder.config_file.is_file()
    if resuming:
        _check_same(config, folder)
        if folder.is_done:
            return folder
    report = ProgressReport(progress)
    data = data_for(config, load_data(config.data, progress))
    check_selection(config.train.selection, data)
    _check_inputs(config, data)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        seed_everything(config.seed, INIT, 0)
        encoder = None
        if config.model.freeze_encoder:
            encoder = FrozenEncoder(config.model, data.task.shape, place, folder.encoder_file)
            with report:
                data = encoder.data(data, report.evaluating)
        method = build_method(config, data.task)
        loop = Loop(method, data, config, folder, place, report)
        state = load_state(folder) if resuming else None
        if not resuming:
            folder.create(config.to_dict())
        with folder.lock(), report:
            _write_environment(folder, config, data, place, command(config, overrides))
            if encoder is not None and not folder.encoder_file.exists():
                save_weights(folder.encoder_file, encoder.network.state_dict())
            loop.run(state)
            save_weights(folder.model_file, method.state_dict())
            splits, predictions = evaluate_method(method, data, place, report.evaluating)
            _finish(folder, config, loop, data, splits, predictions)
    return folder


def command(config: RunConfig, overrides: Iterable[str]) -> str:
    """What makes this run again."""
    settings = [word for setting in overrides for word in ("--set", setting)]
    return shlex.join(["sitar", "train", config.preset, "--seed", str(config.seed), *settings])


def _check_inputs(config: RunConfig, data: Data) -> None:
    """Settings of one section that another forbids."""
    images = len(data.task.shape) == 3
    if config.model.encoder is not None and not images:
        raise ConfigError("model.encoder reads images, and this data holds features already. Leave it out.")
    if config.train.augment != "none" and (config.model.freeze_encoder or not images):
        raise ConfigError(
            "train.augment changes images anew in every epoch, and here the model is given features that are computed "
            "once. Use train.augment=none, or model.freeze_encoder=false."
        )


def _finish(
    folder: RunFolder,
    config: RunConfig,
    loop: Loop,
    data: Data,
    splits: dict[str, dict[str, Any]],
    predictions: dict[str, np.ndarray],
) -> None:
    write_atomic(folder.predictions_file, _npz(predictions))
    folder.finish(
        {
            "version": RESULT_VERSION,
            "dataset": config.data.name,  # type: ignore[attr-defined]
            "method": config.method.name,  # type: ignore[attr-defined]
            "needs_groups": needs_groups(config),
            "preset": config.preset,
            "seed": config.seed,
            "selection": config.train.selection,
            "selected_epoch": loop.selected_epoch,
            "seconds": round(loop.elapsed(), 3),
            "classes": list(data.classes),
            "attributes": {name: list(values) for name, values in data.attributes.items()},
            "splits": splits,
        }
    )
    folder.state_file.unlink(missing_ok=True)


def _check_same(config: RunConfig, folder: RunFolder) -> None:
    different = list(differences(config.to_dict(), folder.read_config()))
    if different:
        raise RunError(
            f"{str(folder.path)!r} holds a run with other settings, so it cannot be resumed with these. Choose another "
            "folder with --out. Nothing was changed. " + "; ".join(different) + "."
        )


def _write_environment(folder: RunFolder, config: RunConfig, data: Data, device: torch.device, command: str) -> None:
    """Who ran this where; a resumed run keeps its first entry and adds one a resume."""
    now = {**describe_environment(device), "command": command, "seed": config.seed, "data_checksum": data.checksum}
    if folder.environment_file.exists():
        first = _read_environment(folder)
        if first["data_checksum"] != data.checksum:
            raise RunError(
                f"The data has changed since the run in {str(folder.path)!r} was started, so it cannot be resumed. "
                "Bring the data back, or start again in another folder."
            )
        now = {**first, "resumed": [*first.get("resumed", []), now]}
    write_atomic(folder.environment_file, to_json(now))


def _read_environment(folder: RunFolder) -> dict[str, Any]:
    try:
        environment = json.loads(folder.environment_file.read_text(encoding="utf-8"))
        return {**environment, "data_checksum": environment["data_checksum"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{str(folder.environment_file)!r} is damaged, so the run cannot be resumed. Start again in another folder."
        ) from error


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
