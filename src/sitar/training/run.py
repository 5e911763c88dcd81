"""Make a run: from settings to a finished run folder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sitar.config import RunConfig, run_config
from sitar.data import Data, load_data, unlabelled
from sitar.data.types import UnlabelledSplit
from sitar.devices import device_name, forked_random_state, what_it_cannot_do
from sitar.errors import ConfigError, DataError, RunError
from sitar.evaluation.evaluate import evaluate_method
from sitar.evaluation.frozen_encoder import FrozenEncoder
from sitar.evaluation.heads import judge_heads
from sitar.evaluation.selection import check_selection
from sitar.files import to_json
from sitar.methods import build_method, data_for, needs_groups, needs_unlabelled
from sitar.models.pretrained import check_weights
from sitar.models.weights import to_bytes
from sitar.plugins import import_options
from sitar.presets import load_config
from sitar.progress import ShownProgress
from sitar.registry import DATASETS
from sitar.run_folder import RESULT_VERSION, UNLABELLED_CHECKSUM, RunFolder, UnwrittenFolder, differences
from sitar.training import advice
from sitar.training.checkpoint import load_state, read_state
from sitar.training.determinism import deterministic
from sitar.training.environment import describe_environment, describe_plugins
from sitar.training.epoch_progress import ProgressBar
from sitar.training.loop import Loop, Turn
from sitar.training.processes import ALONE, Processes, joined
from sitar.training.seeding import INIT, seed_everything
from sitar.training.tensor_float import allowed, check_precision
from sitar.training.trackers import Tracking, check_trackers

logger = logging.getLogger(__name__)
SOURCES = {  # what a method learns from, by its key in environment.json, which tells whether it is the same
    "data_checksum": "data has",
    UNLABELLED_CHECKSUM: "unlabelled inputs have",
    "nuisances": "nuisances have",
}
NEW, RESUMED, DONE = "new", "resumed", "done"  # how a run starts


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

    If torchrun or `accelerate launch` has started several processes, they train this one run together
    (docs/many_processes.md). Each must make the same call. The first of them writes the folder.
    """
    overrides = list(overrides)
    with joined(device) as processes:
        config = load_config(preset, overrides, seed)
        folder = RunFolder(Path(out) if out is not None else default_folder(config, overrides))
        options = {"device": device, "resume": resume, "progress": progress, "overrides": overrides}
        return train_config(config, folder, **options, processes=processes)


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
    processes: Processes = ALONE,
) -> RunFolder:
    """Train a complete configuration in `folder`. `overrides` are for the record only: they led to it."""
    options = {"device": device, "resume": resume, "progress": progress, "overrides": overrides}
    train_keeping_data(config, folder, **options, processes=processes)
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
    processes: Processes = ALONE,
) -> Data | None:
    """Train as `train_config` does, and return the data that was loaded. None: the run was finished before.

    `on_data` is given the data before training starts.
    """
    if config.refit is not None:
        raise ConfigError("Settings with a section `refit` are those of a run that `sitar refit` makes: leave it out.")
    place = processes.device(device)
    _check_one_run(config, folder, resume, processes)
    progress = progress and processes.is_first
    begins = processes.told(lambda: start(config, folder, resume, progress))
    if begins == DONE:
        return None
    if processes.is_first:
        check_trackers(config.train.log)
    check_encoder(config, folder)
    loaded = processes.in_turn("data", lambda: load(config, progress))
    check_trainable(config, loaded)
    on_data(loaded)
    options = {"device": place, "made_by": command(config, overrides), "resuming": begins == RESUMED}
    train_on(config, loaded, folder, **options, progress=progress, processes=processes)
    return loaded


def load(config: RunConfig, progress: bool) -> Data:
    """Load the data, with all that the method is given."""
    data = load_data(config.data, progress)
    with ShownProgress(progress) as shown:
        return data_for(config, data, watch=shown.watch)


def start(config: RunConfig, folder: RunFolder, resume: bool, progress: bool) -> str:
    """Say how a run starts: as a new one, resumed, or not at all because it is done. Refuse what does not fit."""
    if not (resume and folder.is_started):
        folder.refuse_used()  # before anything is loaded
        return NEW
    recorded = _check_same(config, folder)
    if not folder.is_done:
        return RESUMED
    if recorded != config:
        _move(config, folder, progress)
    return DONE


def _check_one_run(config: RunConfig, folder: RunFolder, resume: bool, processes: Processes) -> None:
    """Refuse processes that were started together and told to train different runs."""
    mine = json.dumps([config.to_dict(), str(folder.path), resume], sort_keys=True)
    if mine != processes.told(lambda: mine):
        raise ConfigError(
            f"Process {processes.rank} was given other settings, another folder or another --resume than process 0. "
            "Processes that are started together train one run: start all of them with the same command."
        )


def train_on(
    config: RunConfig,
    loaded: Data,
    folder: RunFolder,
    *,
    device: torch.device,
    made_by: str,
    resuming: bool = False,
    progress: bool = False,
    processes: Processes = ALONE,
) -> None:
    """Train on data that is in memory, as the method may see it, and leave a finished run in `folder`.

    `made_by` is the command that makes the run, for the record.
    """
    advice.warn(config, loaded.task.shape, loaded.train.x.nbytes)
    with forked_random_state(device), what_it_cannot_do(device), deterministic(config.train.deterministic):
        run = Making(
            config, loaded, folder,
            device=device, made_by=made_by, resuming=resuming, progress=progress, processes=processes,
        )  # fmt: skip
        with allowed(config.train.precision):
            run.complete()


class Making:
    """A run in the making: its model is built, and nothing is written yet."""

    def __init__(
        self,
        config: RunConfig,
        loaded: Data,
        folder: RunFolder,
        *,
        device: torch.device,
        made_by: str,
        resuming: bool,
        progress: bool,
        processes: Processes = ALONE,
        beside: Making | None = None,
    ) -> None:
        """Build the model. A run that is made `beside` another one shares the data that lies on the device."""
        check_precision(config.train.precision, device)
        self.config, self.loaded, self.folder, self.device = config, loaded, folder, device
        self.made_by, self.resuming, self.processes = made_by, resuming, processes
        self.own_threads = True  # False: who makes the run has chosen them
        self.shown = ProgressBar(progress, processes.count)
        self.together = 1  # runs that took their steps together, at most
        seed_everything(config.seed, INIT, 0)
        self.encoder, self.data = None, loaded
        if config.model.freeze_encoder:
            self.encoder = FrozenEncoder(config.model, loaded.task.shape, device, folder)
            if beside is not None and beside.encoder is not None and beside.encoder.is_same(self.encoder):
                self.data = beside.data
            else:
                with ShownProgress(progress) as of_features:
                    features = partial(self.encoder.data, loaded, of_features.watch)
                    self.data = processes.in_turn("features", features)
        self.method = build_method(config, self.data.task)
        processes.prepare(self.method)
        self.kept = folder if processes.is_first else UnwrittenFolder(folder.path)
        shares_data = beside is not None and beside.data is self.data
        self.loop = Loop(
            self.method, self.data, config, folder=self.kept, device=device, shown=self.shown, processes=processes,
            beside=beside.loop if beside is not None and shares_data else None,
        )  # fmt: skip

    def complete(self) -> None:
        """Make the run, by itself."""
        turns = self.turns()
        for turn in turns:
            try:
                self.loop.take(turn)
            except BaseException as error:
                turns.throw(error)  # which closes all that is open

    def turns(self) -> Generator[Turn, None, None]:
        """Train, evaluate, and leave a finished run folder. The caller runs the steps of each epoch (`Loop.turns`)."""
        kept, processes, loop, config = self.kept, self.processes, self.loop, self.config
        with kept.lock(), self.shown, ExitStack() as stack:
            if self.resuming and processes.told(lambda: kept.is_done):
                return  # another process has finished it since this one looked
            state = load_state(kept, processes.told(self._read_state)) if self.resuming else None
            if not self.resuming:
                kept.create(config.to_dict())
            first = processes.told(lambda: first_environment(kept))
            _check_data(kept, self.loaded, first, processes)
            _compare_number(first, processes)
            _compare_device(first, self.device)
            if self.device.type == "cpu" and self.own_threads:
                stack.enter_context(processes.cpu_threads(loop.rehearse, recorded_threads(first)))
            if processes.is_first:
                self._write_environment(first)
            if self.encoder is not None and not kept.has_encoder:
                kept.write_encoder(to_bytes(self.encoder.network.state_dict()))
            trackers = config.train.log if processes.is_first else ()
            tracking = stack.enter_context(Tracking(config, kept, 0 if state is None else state["lines"], trackers))
            yield from loop.turns(state, tracking.epoch)
            kept.write_model(to_bytes(self.method.state_dict()))
            self._finish(tracking)

    def _read_state(self) -> bytes | None:
        return read_state(self.kept, self.method)

    def _write_environment(self, first: dict[str, Any] | None) -> None:
        write_environment(self.kept, self.config, self.loaded, self.device, self.made_by, first, self.processes.count)

    def note_together(self, count: int) -> None:
        """Write down that so many runs have taken the steps of an epoch together, this one among them."""
        if count <= self.together or (written := self.kept.environment()) is None:
            return
        self.together = count
        now = written["resumed"][-1] if self.resuming and written.get("resumed") else written
        now["together"] = count
        self.kept.write_environment(written)

    def _finish(self, tracking: Tracking) -> None:
        method, loop, config, device = self.method, self.loop, self.config, self.device
        splits, predictions = evaluate_method(method, self.data, device, self.shown.evaluating, self.processes.over)
        facts = {"selected_epoch": loop.selected_epoch, "seconds": round(loop.elapsed(), 3), **method.facts()}
        if (heads := judge_heads(method, self.data, unlabelled.named_in(config.data), device)) is not None:
            facts["heads"] = heads
        finish(self.kept, config, self.loaded, splits, predictions, facts)
        tracking.finish(splits)


def command(config: RunConfig, overrides: Iterable[str]) -> str:
    """Return the command that makes this run again."""
    settings = [word for setting in overrides for word in ("--set", setting)]
    return shlex.join(["sitar", "train", config.preset, "--seed", str(config.seed), *settings, *import_options()])


def check_encoder(config: RunConfig, folder: RunFolder) -> None:
    """Say within seconds that the weights of an encoder cannot be had, before anything slow begins."""
    if config.model.encoder is not None and not folder.has_encoder:
        check_weights(config.model.encoder, config.model.encoder_weights)


def check_trainable(config: RunConfig, data: Data) -> None:
    """Refuse settings that the data, or another section, does not allow."""
    check_selection(config.train.selection, data)
    if unlabelled.named_in(config.data) is not None and not needs_unlabelled(config):
        logger.warning(
            "%s learns nothing from data.unlabelled, so the unlabelled inputs are not used.", config.method.name
        )
    images = len(data.task.shape) == 3
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
            "needs_groups": needs_groups(config) or (data.nuisances is not None and data.nuisances.has_the_attribute),
            "unlabelled": data.num_unlabelled,
            "nuisances": [] if data.nuisances is None else data.nuisances.names_told,
            "licence": DATASETS.get(config.data.name).licence,
            "preset": config.preset,
            "seed": config.seed,
            "selection": config.train.selection,
            "precision": config.train.precision,
            **facts,
            "classes": list(data.classes),
            "attributes": {name: list(values) for name, values in data.attributes.items()},
            "task": data.describe_task(),
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
    _check_data(folder, load(config, progress), first_environment(folder))
    with folder.lock():
        folder.write_config(config.to_dict())


def first_environment(folder: RunFolder) -> dict[str, Any] | None:
    """Return what was written when the run was started, or None for a new run."""
    try:
        first = folder.environment()
        to_json(first)  # it is written again: NaN and infinity, which are none of ours, are refused now
        return first
    except (RunError, ValueError) as error:
        raise RunError(
            f"{str(folder.environment_file)!r} is damaged, so the run cannot be resumed. Start again in another folder."
        ) from error


def _check_data(folder: RunFolder, data: Data, first: dict[str, Any] | None, processes: Processes = ALONE) -> None:
    """Refuse data that is not that of the first process, or not that with which the run was started."""
    sources = _sources(data)
    if sources != processes.told(lambda: sources):
        raise DataError(
            f"Process {processes.rank} has read other data than process 0. All machines need the same files."
        )
    for key, what in SOURCES.items():
        if first is not None and first.get(key) != sources.get(key):
            raise RunError(
                f"The {what} changed since the run in {str(folder.path)!r} was started, so it cannot be resumed. "
                "Bring back what was there, or start again in another folder."
            )


def _compare_number(first: dict[str, Any] | None, processes: Processes) -> None:
    """Say so if a run goes on with another number of processes than it was started with."""
    before = processes.count if first is None else first.get("processes", 1)
    if before != processes.count:
        logger.warning(
            "The run was started on %d processes and continues on %d. The samples and the noise of every step are the "
            "same, but sums are added in another order: weights may differ in the last digits.",
            before, processes.count,
        )  # fmt: skip


def _compare_device(first: dict[str, Any] | None, device: torch.device) -> None:
    """Say so if a run goes on with another kind of processor than it was started with."""
    before, now = None if first is None else first.get("device"), device_name(device)
    if before is not None and before != now:
        logger.warning(
            "The run was started on %s and continues on %s. The samples and the seeds are the same, but sums are added "
            "in another order, and a GPU draws other noise: its weights differ from those of a run that was never "
            "moved.", before, now,
        )  # fmt: skip


def _sources(data: Data) -> dict[str, Any]:
    """Return what tells apart the sources that a method learns from, as environment.json has it."""
    found: dict[str, Any] = {"data_checksum": data.checksum}
    if isinstance(data.train, UnlabelledSplit):
        found[UNLABELLED_CHECKSUM] = unlabelled.checksum(data.train.unlabelled)
    if data.nuisances is not None:
        found["nuisances"] = [vars(nuisance) for nuisance in data.nuisances.about]
    return found


def recorded_threads(first: dict[str, Any] | None) -> int | None:
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
    processes: int = 1,
) -> None:
    """Write who ran this where. A resumed run keeps its first entry and adds one for each resume.

    Where the data has moved since, the configuration is written anew, so that the run finds it.
    """
    now = {**describe_environment(device), "processes": processes, **describe_plugins(config)}
    now |= {"command": command, "seed": config.seed, **_sources(data)}
    if first is not None:
        now = {**first, "resumed": [*first.get("resumed", []), now]}
        if run_config(folder.read_config()) != config:
            folder.write_config(config.to_dict())
    folder.write_environment(now)
