"""A tracker is told the settings of a run, the values of each epoch, and the final results."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Values = dict[str, float]


@dataclass(frozen=True)
class TrackedRun:
    """This is what a tracker may know of a run when it starts."""

    name: str
    settings: dict[str, Any]  # by their full name, such as method.alpha
    folder: Path  # a place for the tracker's own files, inside the run folder
    steps: int  # how many epochs are logged already: the run is resumed
    id: str | None  # what the tracker has called this run before it was stopped


class Tracker(ABC):
    """Each tracker starts when it is made. It may raise what it likes: the caller leaves it out then."""

    id: str | None = None  # what the tracker calls the run, so that a resumed run continues it

    @classmethod
    @abstractmethod
    def check(cls) -> None:
        """Raise an error if this tracker cannot work here. This is asked before data is loaded."""

    @abstractmethod
    def __init__(self, run: TrackedRun) -> None: ...

    @abstractmethod
    def epoch(self, step: int, values: Values) -> None:
        """Log the values of an epoch. Epochs of all phases are counted through, from 1."""

    @abstractmethod
    def finish(self, results: Values) -> None:
        """Log the final results. The run is done."""

    @abstractmethod
    def close(self, is_done: bool) -> None:
        """Write everything out. A run that is not done was stopped, and may be resumed."""


def epoch_values(line: Mapping[str, Any]) -> Values:
    """Return a line of metrics.jsonl as numbers by name: train/loss, val/average, and so on.

    Terms of the loss have the name of their phase in front. Of a value for each axis, mean and maximum are kept.
    """
    phase = line["phase"]
    values: Values = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            values |= {f"{name}/{metric}": number for metric, number in _numbers(value)}
        elif isinstance(value, list):
            axes = [number for number in value if isinstance(number, int | float)]
            if axes:
                values |= {f"{phase}/{name}_mean": sum(axes) / len(axes), f"{phase}/{name}_max": max(axes)}
        else:
            values |= {f"{phase}/{name}": number for name, number in _numbers({name: value})}
    return values


def result_values(splits: Mapping[str, Mapping[str, Any]]) -> Values:
    """Return the metrics of a finished run as numbers by name: result/test/average, result/test/group/NAME."""
    values: Values = {}
    for split, metrics in splits.items():
        values |= {f"result/{split}/{name}": number for name, number in _numbers(metrics)}
        for group, found in (metrics.get("groups") or {}).items():
            values |= {f"result/{split}/group/{group}": number for _, number in _numbers({"": found["accuracy"]})}
    return values


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the finite numbers among values."""
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name, float(value)
