"""Tell all trackers of a run what happens. None of them can stop the run, or change it."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sitar.config import RunConfig
from sitar.errors import ConfigError, RunError
from sitar.plugins import one_line
from sitar.run_folder import RunFolder, flat
from sitar.training.environment import EXTRAS
from sitar.training.trackers.tracker import TrackedRun, Tracker, epoch_values, result_values

logger = logging.getLogger(__name__)
HOMES = {"tensorboard": "TensorBoardTracker", "wandb": "WandbTracker", "mlflow": "MlflowTracker"}  # module: class


def check_trackers(names: Iterable[str]) -> None:
    """Refuse trackers that cannot work here, before anything slow is done."""
    for name in names:
        try:
            _tracker(name).check()
        except ImportError as error:
            raise ConfigError(
                f'train.log={name} needs a package that is not installed ({error}): pip install "{EXTRAS[name]}", or '
                "leave it out."
            ) from error
        except Exception as error:  # it is not specified what a tracker raises
            raise ConfigError(
                f"train.log={name} cannot be used here: {one_line(error)}. Mend it, or leave it out."
            ) from error


class Tracking:
    """Holds the trackers of a run. One that fails is named once, and is left out from then on."""

    def __init__(self, config: RunConfig, folder: RunFolder, steps: int, names: Iterable[str]) -> None:
        """Start the trackers of these names. `steps` epochs are logged already if the run is resumed."""
        self.active: dict[str, Tracker] = {}
        self.is_done = False
        ids = folder.tracker_ids()
        name, settings = f"{config.preset}, seed {config.seed}", flat(config.to_dict())
        for kind in dict.fromkeys(names):
            _refuse_links(folder, folder.trackers / kind)
            run = TrackedRun(name, settings, folder.trackers / kind, steps, ids.get(kind))
            self._guard(kind, lambda kind=kind, run=run: self.active.update({kind: _tracker(kind)(run)}))
        known = {kind: tracker.id for kind, tracker in self.active.items() if tracker.id is not None}
        if known != ids:
            folder.write_tracker_ids({**ids, **known})

    def epoch(self, step: int, line: Mapping[str, Any]) -> None:
        self._tell(lambda tracker: tracker.epoch(step, epoch_values(line)))

    def finish(self, splits: Mapping[str, Mapping[str, Any]]) -> None:
        self._tell(lambda tracker: tracker.finish(result_values(splits)))
        self.is_done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell(lambda tracker: tracker.close(self.is_done))

    def _tell(self, say: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.active.items()):
            self._guard(name, lambda tracker=tracker: say(tracker))

    def _guard(self, name: str, do: Callable[[], None]) -> None:
        try:
            do()
        except (Exception, SystemExit) as error:  # it is not specified what a tracker raises
            self.active.pop(name, None)
            logger.warning(
                "The tracker %s has failed and is left out from here on. Training goes on. (%s)", name, one_line(error)
            )


def _refuse_links(folder: RunFolder, own: Path) -> None:
    """Refuse a tracker's own folder that leads out of the run folder, or has a folder in it that does.

    Links to files are left alone: Weights & Biases makes some to its own logs.
    """
    root = os.path.realpath(folder.path)
    for place in chain([own], (entry for entry in own.rglob("*") if entry.is_dir())):  # `own` before what is in it
        if not Path(os.path.realpath(place)).is_relative_to(root):
            raise RunError(f"{str(place)!r} leads out of the run folder. Nothing is written there.")


def _tracker(name: str) -> type[Tracker]:
    return getattr(importlib.import_module(f"sitar.training.trackers.{name}"), HOMES[name])
