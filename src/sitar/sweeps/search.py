"""A search draws points with Optuna. It is the same for the same command, and continues after a kill.

Trials are drawn in rounds: as many as there are workers for, then all of them are run. What a trial tries depends on
its number, the seed of the search, and the trials of earlier rounds, and not on which run ends first. A trial is
written into the storage whole, with its values, before its runs start. One that a kill has left unfinished is taken up
again.

Optuna's storage has no checksums. So its trials are noted beside it (trials.json), and compared when a search goes on.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from typing import Any

from sitar.errors import ConfigError, RunError, SitarError, first_line
from sitar.sweeps.axes import Axis, Range
from sitar.sweeps.choosing import Rule
from sitar.sweeps.notes import Notes
from sitar.sweeps.plan import Plan, Point, unique

DIGITS = 4  # significant digits of what is drawn from a range


@dataclass(frozen=True)
class Trial:
    """A trial of a search tries one point."""

    number: int
    point: Point


class Search:
    """A search asks Optuna for points, and tells it what came out. Its trials lie in the sweep folder."""

    def __init__(self, plan: Plan, rule: Rule, file: Path, higher_is_better: bool) -> None:
        if not plan.axes:
            raise ConfigError("A search needs settings to vary: --over method.alpha=0.01..10:log.")
        self.optuna = _optuna()
        self.plan = plan
        self.space = {axis.key: self._distribution(axis) for axis in plan.axes}
        self.directions = "maximize" if higher_is_better else "minimize"
        about = [plan.preset, sorted(plan.overrides), plan.seeds, rule.name, [(a.key, a.describe()) for a in plan.axes]]
        name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            raise RunError(f"{str(file)!r} is a link, and leads elsewhere. Choose another folder with --out.")
        self.file = file
        with self._storage():
            self.study = self.optuna.create_study(
                storage=f"sqlite:///{file.absolute()}", study_name=f"{plan.preset} {name}",
                direction=self.directions, load_if_exists=True,
            )  # fmt: skip
            self.notes = Notes(file.with_name("trials.json"), self.study.study_name)
            self._check_storage(file)

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Say of a file of trials that is damaged that it is."""
        try:
            yield
        except SitarError:
            raise
        except Exception as error:  # of SQLAlchemy, of Optuna, of the disk
            raise RunError(
                f"The trials in {str(self.file)!r} cannot be read or written: {first_line(error)}. Move the file "
                "away, and trials.json beside it, to search anew; or choose another folder with --out."
            ) from error

    def _check_storage(self, file: Path) -> None:
        """Refuse a storage that is damaged, or whose trials are not those that were noted."""
        known = self._plain()
        if any(trial.distributions != self.space for trial in self.study.get_trials(deepcopy=False)):
            raise ValueError("it is damaged: a trial was drawn from other settings than these")
        self.notes.compare(known)
        with closing(sqlite3.connect(file)) as storage:
            if (found := storage.execute("PRAGMA integrity_check").fetchone()) != ("ok",):
                raise ValueError(f"it is damaged: {found}")
        self.notes.write(known)

    def _plain(self) -> list[dict[str, Any]]:
        """Return all trials as plain values."""
        return [
            {"params": trial.params, "state": trial.state.name, "value": trial.value}
            for trial in self.study.get_trials(deepcopy=False)
        ]

    def trials(self) -> list[Trial]:
        """Return the trials so far, in order, without those whose settings do not fit together."""
        failed = self.optuna.trial.TrialState.FAIL
        with self._storage():
            known = self.study.get_trials(deepcopy=False)
            return [Trial(trial.number, self._point(trial.params)) for trial in known if trial.state != failed]

    def points(self) -> list[Point]:
        """Return what the trials try, each point once."""
        return unique(trial.point for trial in self.trials())

    def rounds(self, total: int, size: int) -> Iterator[list[Trial]]:
        """Yield the trials of each round, until there are `total`. First come those that were never told of."""
        running = self.optuna.trial.TrialState.RUNNING
        left = [trial.number for trial in self._known() if trial.state == running]
        if left:
            yield [trial for trial in self.trials() if trial.number in left]
        while (begun := len(self._known())) < total:
            with self._storage():
                asked = self._ask(min(size, total - begun))
            yield asked

    def _known(self) -> list[Any]:
        with self._storage():
            return self.study.get_trials(deepcopy=False)

    def tell(self, trial: Trial, score: float | None) -> None:
        """Say what a trial's runs have on `val`. Without a score it stays open, and the same command tries it again."""
        if score is not None:
            with self._storage():
                self.study.tell(trial.number, score, skip_if_finished=True)
                self.notes.write(self._plain())

    def _ask(self, count: int) -> list[Trial]:
        """Draw trials from a copy of the study, and write each into the storage at once.

        Settings that do not fit together make a failed trial, which has no runs.
        """
        optuna, asked = self.optuna, []
        for _ in range(count):
            known = self.study.get_trials(deepcopy=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                sampler = optuna.samplers.TPESampler(seed=len(known), multivariate=True, constant_liar=True)
            copy = optuna.create_study(direction=self.directions, sampler=sampler)
            copy.add_trials(known)
            drawn = copy.ask(self.space)
            params = {axis.key: self._rounded(axis, drawn.params[axis.key]) for axis in self.plan.axes}
            state = optuna.trial.TrialState.RUNNING
            try:
                asked.append(Trial(len(known), self._point(params)))
            except ConfigError:
                state = optuna.trial.TrialState.FAIL
            self.study.add_trial(optuna.trial.create_trial(state=state, params=params, distributions=self.space))
            self.notes.write(self._plain())
        return asked

    def _point(self, params: dict[str, Any]) -> Point:
        values = {axis.key: params[axis.key] for axis in self.plan.axes}
        return self.plan.point({
            axis.key: values[axis.key] if isinstance(axis, Range) else json.loads(values[axis.key])
            for axis in self.plan.axes
        })  # fmt: skip

    def _distribution(self, axis: Axis) -> Any:
        kinds = self.optuna.distributions
        if not isinstance(axis, Range):
            return kinds.CategoricalDistribution([json.dumps(value) for value in axis.values])
        if axis.integer:
            return kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.log)

    @staticmethod
    def _rounded(axis: Axis, value: Any) -> Any:
        """Return a value as people write it. It stays in its range."""
        if not isinstance(axis, Range) or axis.integer or not value:
            return value
        return min(max(round(value, DIGITS - 1 - floor(log10(abs(value)))), axis.low), axis.high)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError('--search optuna needs Optuna: pip install "sitar[optuna]".') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
