"""Train one setting with several seeds: together where this is right and faster, and else one after another."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch

from sitar.config import RunConfig
from sitar.data import Data
from sitar.devices import forked_random_state, resolve_device, what_it_cannot_do
from sitar.errors import ConfigError, RunError, SitarError
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.training import advice
from sitar.training.copies.branches import BRANCHES
from sitar.training.copies.lockstep import Lockstep
from sitar.training.copies.trial import CannotStackError, Stacking, choose_way
from sitar.training.determinism import deterministic
from sitar.training.processes import launch
from sitar.training.run import (
    DONE,
    RESUMED,
    Making,
    check_encoder,
    check_trainable,
    command,
    default_folder,
    first_environment,
    load,
    recorded_threads,
    start,
)
from sitar.training.tensor_float import allowed
from sitar.training.threads import cpu_threads
from sitar.training.trackers import check_trackers

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """A seed was trained, or has failed with an error."""

    seed: int
    folder: RunFolder
    error: SitarError | None = None


def train_seeds(
    preset: str,
    seeds: Iterable[int],
    *,
    overrides: Iterable[str] = (),
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    resume: bool = False,
    progress: bool = True,
    stack: Stacking = "auto",
) -> list[Trained]:
    """Train a preset with several seeds, and leave a finished run folder for each. A seed that fails stops no other.

    Each run is that of its seed alone, up to rounding: its own weights, sample order, noise, epoch selection and
    record. Where it is faster, all are trained as one batched model, or as branches of one CUDA graph; "never" and
    "always" decide it. Without `out` the folders are those of single runs, and else `out/seedN`. `resume` continues
    runs that were stopped, together or alone, and leaves finished ones as they are.
    """
    overrides = list(overrides)
    configs = [load_config(preset, overrides, seed) for seed in seeds]
    folders = [
        RunFolder(default_folder(config, overrides) if out is None else Path(out) / f"seed{config.seed}")
        for config in configs
    ]
    pairs = list(zip(configs, folders, strict=True))
    return train_copies(
        pairs, overrides=overrides, device=device, resume=resume, progress=progress, stack=stack
    )  # fmt: skip


def train_copies(
    runs: Sequence[tuple[RunConfig, RunFolder]],
    *,
    overrides: Iterable[str] = (),
    device: str = "auto",
    resume: bool = False,
    progress: bool = True,
    stack: Stacking = "auto",
) -> list[Trained]:
    """Train configurations that differ in the seed alone, each in its folder. `overrides` are for the record only."""
    _check(runs, stack)
    if not resume:
        _refuse_finished(runs)
    todo: list[tuple[RunConfig, RunFolder, bool]] = []
    failed: dict[Path, SitarError] = {}
    for config, folder in runs:
        try:
            how = start(config, folder, resume, progress)
        except SitarError as error:
            failed[folder.path] = error
            logger.error("Seed %d cannot start. %s", config.seed, error)
        else:
            todo += [] if how == DONE else [(config, folder, how == RESUMED)]
    if todo:
        place, config = resolve_device(device), todo[0][0]
        check_trackers(config.train.log)
        for _, folder, _ in todo:
            check_encoder(config, folder)
        data = load(config, progress)
        check_trainable(config, data)
        advice.warn(config, data.task.shape, data.train.x.nbytes)
        with forked_random_state(place), what_it_cannot_do(place), deterministic(config.train.deterministic):
            makings = _build(todo, data, place, list(overrides), progress)
            with allowed(config.train.precision):
                failed |= _complete(makings, stack)
    return [Trained(config.seed, folder, failed.get(folder.path)) for config, folder in runs]


def _check(runs: Sequence[tuple[RunConfig, RunFolder]], stack: str) -> None:
    if stack not in get_args(Stacking):
        raise ConfigError(f"--stack {stack}: there are {', '.join(get_args(Stacking))}.")
    if (launched := launch()) is not None and launched.count > 1:
        raise ConfigError(
            "Several processes train one run together, and --seeds makes several runs. Start one process, or one seed."
        )
    settings = [config.to_dict() | {"seed": 0} for config, _ in runs]
    if any(other != settings[0] for other in settings):
        raise ValueError("these configurations differ in more than the seed")
    if len({folder.path for _, folder in runs}) < len(runs):
        raise ConfigError("Each seed needs a run folder of its own, and two of them are the same.")


def _refuse_finished(runs: Sequence[tuple[RunConfig, RunFolder]]) -> None:
    """Say it once where all runs are finished. Where only some are, the others are made."""
    if len(runs) > 1 and all(folder.is_done for _, folder in runs):
        seeds, first = ", ".join(str(config.seed) for config, _ in runs), str(runs[0][1].path)
        raise RunError(
            f"The seeds {seeds} are finished already, the first in {first!r}. --resume shows their results, and --out "
            "names another folder. Nothing was overwritten."
        )


def _build(
    todo: Sequence[tuple[RunConfig, RunFolder, bool]], data: Data, device: torch.device, overrides: list[str],
    progress: bool,
) -> list[Making]:  # fmt: skip
    makings: list[Making] = []
    for config, folder, resuming in todo:
        makings.append(
            Making(
                config, data, folder, device=device, made_by=command(config, overrides), resuming=resuming,
                progress=progress, beside=makings[0] if makings else None,
            )
        )  # fmt: skip
    return makings


def _complete(makings: Sequence[Making], stack: Stacking) -> dict[Path, SitarError]:
    """Complete the runs, and return the errors of those that have failed, by their folders."""
    first = makings[0]
    if len(makings) > 1:
        try:
            if first.config.train.log:
                raise CannotStackError("Trackers (train.log) follow one run at a time.")
            with ExitStack() as threads:
                if first.device.type == "cpu":
                    recorded = recorded_threads(first_environment(first.folder))
                    threads.enter_context(cpu_threads(first.loop.rehearse, recorded))
                way = choose_way([making.loop for making in makings], stack)
                how = "side by side" if way == BRANCHES else "as one model"
                logger.info("%d seeds are trained %s.", len(makings), how)
                return _together(makings, way)
        except CannotStackError as error:
            logger.info("The seeds are trained one after another. %s", error)
    failed = {}
    for making in makings:
        try:
            making.complete()
        except SitarError as error:
            failed[making.folder.path] = error
            logger.error("Seed %d has failed.", making.config.seed)
    return failed


def _together(makings: Sequence[Making], way: str) -> dict[Path, SitarError]:
    for number, making in enumerate(makings):
        making.own_threads = False
        making.shown.enabled &= number == 0  # one bar shows all of them
    lockstep = Lockstep(makings, way)
    lockstep.complete()
    return {making.folder.path: error for making, error in lockstep.failed.items()}
