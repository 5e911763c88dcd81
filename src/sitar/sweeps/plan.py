"""A plan says which runs a sweep consists of. Settings alone decide the name of a run, so no run is made twice."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sitar.config import RunConfig, run_config
from sitar.controls import CONTROLS
from sitar.errors import ConfigError, RunError
from sitar.plugins import imported_files
from sitar.presets import load_config
from sitar.run_folder import RunFolder, differences, flat
from sitar.sweeps.axes import Axis, Range, Values
from sitar.sweeps.engines.job import Job

AS_IT_IS = "preset"  # the name of the one point of a sweep that varies nothing but the seed
SAFE = re.compile(r"[a-z0-9_+-](?:[a-z0-9._+-]*[a-z0-9_+-])?")  # the same name on every file system
LONGEST = 120  # characters of a name
MANY = 10_000  # runs, above which a grid is a mistake


@dataclass(frozen=True)
class Point:
    """A point of a sweep has a value for each axis. Its runs differ in the seed."""

    values: Mapping[str, Any]
    config: RunConfig

    @property
    def name(self) -> str:
        return point_name(self.values)

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={json.dumps(value)}" for key, value in self.values.items()]

    @property
    def is_control(self) -> bool:
        """Return whether this is the control of its method: the same model without noise."""
        control = CONTROLS.get(self.config.method.name)
        return control is not None and getattr(self.config.method, control.strength) == 0


@dataclass(frozen=True)
class Plan:
    """A plan holds what all runs of a sweep share, and the seeds of each point."""

    preset: str
    overrides: tuple[str, ...]
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    root: Path
    device: str = "auto"

    def point(self, values: Mapping[str, Any]) -> Point:
        """Return a point with its values as the settings hold them: 1e-1, 0.10 and 0.1 are one point."""
        given = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        config = load_config(self.preset, [*self.overrides, *given], self.seeds[0])
        settings = flat(config.to_dict())
        for key in values:
            if key not in settings:
                raise ConfigError(f"--over {key}: this is not the name of one setting, such as method.alpha.")
        return Point({key: settings[key] for key in values}, config)

    def grid(self) -> list[Point]:
        """Return a point for each combination of values."""
        for axis in self.axes:
            if isinstance(axis, Range):
                raise ConfigError(
                    f"--over {axis.key} is a range, from which a search draws: add --search optuna. A grid has values, "
                    f"such as --over {axis.key}={axis.low:g},{axis.high:g}."
                )
        lists = [axis.values for axis in self.axes if isinstance(axis, Values)]
        count = len(self.seeds)
        for values in lists:
            count *= len(values)
        if count > MANY:
            raise ConfigError(f"This grid has {count:,} runs, and at most {MANY:,} are allowed. Use --search optuna.")
        keys = [axis.key for axis in self.axes]
        points = [self.point(dict(zip(keys, values, strict=True))) for values in itertools.product(*lists)]
        return unique(points)

    def typed(self) -> Plan:
        """Return the plan with ranges of whole numbers where the setting is one."""
        axes = [replace(axis, integer=self._is_whole(axis)) if isinstance(axis, Range) else axis for axis in self.axes]
        return replace(self, axes=tuple(axes))

    def corners(self) -> list[Point]:
        """Return the points with the first and with the last value of each axis."""
        ends = [(axis.ends() if isinstance(axis, Range) else (axis.values[0], axis.values[-1])) for axis in self.axes]
        return [self.point({axis.key: end[i] for axis, end in zip(self.axes, ends, strict=True)}) for i in (0, 1)]

    def _is_whole(self, axis: Range) -> bool:
        found = [self.point({axis.key: end}).values[axis.key] for end in axis.ends()]
        for value in found:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"--over {axis.key} is no number, so it has no range. List its values.")
        return all(isinstance(value, int) for value in found)

    def folder(self, point: Point, seed: int) -> RunFolder:
        return RunFolder(self.root / point.name / f"seed{seed}")

    def is_finished(self, point: Point, seed: int) -> bool:
        """Return whether there is nothing to do. Where the data lies elsewhere now, the run is made to look at it."""
        folder = self.folder(point, seed)
        return folder.is_done and run_config(folder.read_config()).to_dict() == _seeded(point, seed)

    def log(self, point: Point, seed: int) -> Path:
        return self.root / "logs" / point.name / f"seed{seed}.txt"

    def jobs(self, points: Sequence[Point]) -> list[Job]:
        """Return a job for each run that is not finished, seed by seed: stopped halfway, every point has some seeds."""
        return [
            Job(
                str(self.folder(point, seed).path), self.preset, seed, (*self.overrides, *point.overrides), self.device,
                tuple(imported_files()), log=str(self.log(point, seed)),
            )
            for seed in self.seeds
            for point in points
            if not self.is_finished(point, seed)
        ]  # fmt: skip

    def check_folders(self, points: Sequence[Point]) -> None:
        """Refuse folders that hold runs with other settings, or lead elsewhere, before anything is run."""
        for point, seed in itertools.product(points, self.seeds):
            log = self.log(point, seed)
            is_own = log.resolve().is_relative_to(self.root.resolve())
            if not is_own or (log.exists() and not log.is_file()):
                raise RunError(
                    f"{str(log)!r} is no file of this sweep folder. Remove it, or choose another with --out."
                )
        for point, seed in itertools.product(points, self.seeds):
            folder = self.folder(point, seed)
            if not folder.is_started:
                continue
            if other := differences(_seeded(point, seed), run_config(folder.read_config()).to_dict()):
                raise RunError(
                    f"{str(folder.path)!r} holds a run with other settings, so this sweep cannot continue there. "
                    "Choose another folder with --out. Nothing was changed. " + "; ".join(other) + "."
                )


def unique(points: Iterable[Point]) -> list[Point]:
    """Return each point once."""
    return list({point.name: point for point in points}.values())


def _seeded(point: Point, seed: int) -> dict[str, Any]:
    return {**point.config.to_dict(), "seed": seed}


def default_root(preset: str, overrides: Iterable[str]) -> Path:
    """Return where the runs of a sweep lie: by its preset, and a digest of what --set changes for all of them."""
    name = Path(preset).stem if preset.endswith((".yaml", ".yml")) else preset
    settings = sorted(overrides)
    return Path("runs", "sweeps", name + (f"-{_digest(settings)}" if settings else ""))


def point_name(values: Mapping[str, Any]) -> str:
    """Return the name of a folder for these values, such as method.alpha=0.5,model.latent_dim=10.

    What some file system does not take or tell apart is replaced, and a digest of the value keeps names apart.
    """
    name = ",".join(f"{key}={_written(value)}" for key, value in values.items()) or AS_IT_IS
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{_digest(dict(values))}"


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, float):
        text = text.removesuffix(".0")
    if SAFE.fullmatch(text) and not (isinstance(value, str) and _looks_like_another(value)):
        return text
    return f"{re.sub(r'[^A-Za-z0-9_+-]+', '_', text)[:40]}-{_digest(value)}"


def _looks_like_another(text: str) -> bool:
    """Return whether a string is written like a number, true, false or null."""
    try:
        return not isinstance(json.loads(text), str)
    except ValueError:
        return False


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
