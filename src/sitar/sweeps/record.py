"""The record of a sweep says what its runs have measured, point by point, and which point is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from sitar.evaluation.metrics import METRICS
from sitar.given import given_to
from sitar.methods import needs_groups
from sitar.reporting.against import goodness
from sitar.reporting.comparison import Row
from sitar.reporting.tables.table import HEADLINE, KNOWLEDGE
from sitar.run_folder import Run, RunFolder
from sitar.splits import EVALUATION_SPLITS
from sitar.sweeps.axes import Axis, Range
from sitar.sweeps.choosing import Rule
from sitar.sweeps.folder import SWEEP_VERSION
from sitar.sweeps.plan import Plan, Point


@dataclass
class Results:
    """The results of a plan are read from its run folders. A finished run is read once."""

    plan: Plan
    rule: Rule
    errors: dict[str, str] = field(default_factory=dict)  # of failed runs, by their folder
    _read: dict[str, Run] = field(default_factory=dict)

    def runs(self, point: Point) -> list[Run]:
        """Return the finished runs of a point, in the order of seeds."""
        return [run for seed in self.plan.seeds if (run := self._run(point, seed)) is not None]

    def score(self, point: Point) -> float | None:
        """Return the mean of the rule's metric over all seeds. None: a seed is missing, or has no such value."""
        values = [run.result["splits"].get(self.rule.split, {}).get(self.rule.metric) for run in self.runs(point)]
        known = [value for value in values if value is not None]
        return mean(known) if len(known) == len(self.plan.seeds) else None

    def value(self, folder: str) -> float | None:
        """Return the rule's metric of one run. None: it is not finished, or has no such value."""
        found = RunFolder(Path(folder))
        return found.result()["splits"].get(self.rule.split, {}).get(self.rule.metric) if found.is_done else None

    def record(self, points: Sequence[Point], search: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what is known now, as sweep.json holds it."""
        plan, rule = self.plan, self.rule
        all_runs = [(point, seed) for point in points for seed in plan.seeds]
        return {
            "version": SWEEP_VERSION,
            "preset": plan.preset,
            "settings": list(plan.overrides),
            "over": {axis.key: _described(axis, points) for axis in plan.axes},
            "seeds": list(plan.seeds),
            "search": None if search is None else dict(search),
            "select": {
                "rule": rule.name,
                "split": rule.split,
                "metric": rule.metric,
                "reads_groups": rule.reads_groups,
            },
            "chosen": self._chosen(points),
            "points": [self._describe(point) for point in points],
            "unfinished": sum(self._run(point, seed) is None for point, seed in all_runs),
            "failed": [self._failure(point, seed) for point, seed in all_runs if self._key(point, seed) in self.errors],
            "mixed_data": self._has_mixed_data(points),
        }

    def _chosen(self, points: Sequence[Point]) -> str | None:
        """Return the name of the best point. Of points that are equally good, it is the first."""
        metric = METRICS[self.rule.metric]
        scores = {point.name: goodness(metric, score) for point in points if (score := self.score(point)) is not None}
        return max(scores, key=scores.__getitem__) if scores else None

    def _describe(self, point: Point) -> dict[str, Any]:
        runs = self.runs(point)
        row = Row(point.name, runs)
        names = dict.fromkeys((self.rule.metric, *HEADLINE, *KNOWLEDGE))
        splits = [split for split in EVALUATION_SPLITS if any(split in run.result["splits"] for run in runs)]
        return {
            "name": point.name,
            "values": dict(point.values),
            "control": point.is_control,
            **given_to({"needs_groups": needs_groups(point.config), **(runs[0].result if runs else {})}),
            "seeds": row.seeds,
            "score": self.score(point),
            "splits": {
                split: {name: summary for name in names if (summary := row.summary(split, name))["mean"] is not None}
                for split in splits
            },
            "seconds": [run.result["seconds"] for run in runs],
        }

    def _failure(self, point: Point, seed: int) -> dict[str, Any]:
        error = self.errors[self._key(point, seed)]
        return {"name": point.name, "seed": seed, "error": error, "log": str(self.plan.log(point, seed))}

    def _has_mixed_data(self, points: Sequence[Point]) -> bool:
        """Return whether runs with the same settings of the data were made on different data."""
        checksums: dict[str, set[str | None]] = {}
        for point in points:
            data = str({key: value for key, value in point.values.items() if key.startswith("data.")})
            checksums.setdefault(data, set()).update(run.data_checksum for run in self.runs(point))
        return any(len(found - {None}) > 1 for found in checksums.values())

    def _key(self, point: Point, seed: int) -> str:
        return str(self.plan.folder(point, seed).path)

    def _run(self, point: Point, seed: int) -> Run | None:
        key, folder = self._key(point, seed), self.plan.folder(point, seed)
        if key in self.errors:  # such as a finished run whose data has changed since
            return None
        if key not in self._read and folder.is_done:
            self._read[key] = Run.read(folder)
        return self._read.get(key)


def _described(axis: Axis, points: Sequence[Point]) -> Any:
    """Return the range of a setting, or its values as the settings hold them."""
    if isinstance(axis, Range):
        return axis.describe()
    values = [point.values[axis.key] for point in points]
    return [value for i, value in enumerate(values) if value not in values[:i]]
