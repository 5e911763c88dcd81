"""Runs for a report, read from their folders: those on the same data together, and why others are left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.errors import RunError
from sitar.reporting.explained import read_arrays, sound
from sitar.reporting.tables import TEST_SPLITS, Row, flat, group_runs
from sitar.run_folder import AUDIT_VERSION, EXPLAIN_VERSION, RunFolder

PLACES = ("root", "table", "file")  # settings that say where the data lies


@dataclass(frozen=True)
class Run:
    """A finished run and what was left beside its result. `explain` and `audit` are None where nobody made them."""

    folder: RunFolder
    row: int  # its place among the rows of its comparison
    label: str
    config: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    environment: dict[str, Any]
    explain: dict[str, Any] | None
    audit: dict[str, Any] | None

    @cached_property
    def classes(self) -> list[str]:
        names = self.result.get("classes")
        widths = [array.shape[1] for name, array in self._predictions.items() if name.endswith("/logits")]
        return names or [f"class {i}" for i in range(max(widths, default=2))]

    def logits(self, split: str) -> NDArray[np.float32]:
        return self._predictions.get(f"{split}/logits", np.zeros((0, 2), np.float32))

    def labels(self, split: str) -> NDArray[np.int64]:
        return self._predictions.get(f"{split}/y", np.zeros(0, np.int64))

    def is_right(self, split: str) -> NDArray[np.bool_]:
        """Of every sample of a split."""
        return self.logits(split).argmax(1) == self.labels(split)

    @cached_property
    def _predictions(self) -> dict[str, NDArray[Any]]:
        return _arrays(self.folder.predictions_file)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of an artifact; empty where there is none."""
        return _arrays(self.folder.artifacts / f"{name}.npz")


@dataclass(frozen=True)
class Comparison:
    """Runs on the same data. A row is runs that differ in the seed alone."""

    dataset: str
    rows: list[Row]
    runs: list[Run]
    name: str = ""  # of the data, where others in the report are of the same dataset: with what tells them apart

    @property
    def splits(self) -> list[str]:
        """Test splits that a run has, the one that decides last; `val` where there is none."""
        found = [s for s in TEST_SPLITS if any(s in run.result["splits"] for run in self.runs)]
        return found or ["val"]

    @property
    def main_split(self) -> str:
        """What the words are about: unseen conditions where the data has them."""
        return next((s for s in ("ood_test", "test", "id_test") if s in self.splits), "val")

    @property
    def classes(self) -> list[str]:
        return self.runs[0].classes

    @property
    def attributes(self) -> dict[str, list[str]]:
        """Names of the values of the attribute; runs made before there were some have none."""
        return next((found for run in self.runs if (found := run.result.get("attributes"))), {})


def gather(paths: Sequence[Path]) -> tuple[list[Comparison], list[tuple[str, str]]]:
    """Comparisons, one for each data, and (path, reason) of what is left out."""
    sorted_out: dict[str, list[RunFolder]] = {}
    left_out: list[tuple[str, str]] = []
    seen: dict[tuple[str, str], Path] = {}
    for path in paths:
        folder = RunFolder(path)
        try:
            config, data = folder.read_config(), _data(folder)
            folder.metrics()
        except RunError as error:
            left_out.append((str(path), str(error)))
            continue
        key = json.dumps(config, sort_keys=True, default=str), data
        if key in seen:
            left_out.append((str(path), f"It is the same run as {str(seen[key])!r}: settings, seed and data."))
            continue
        seen[key] = path
        sorted_out.setdefault(data, []).append(folder)
    if not sorted_out:
        raise RunError("No finished run to report on. " + " ".join(reason for _, reason in left_out))
    return _named([_comparison(folders) for folders in sorted_out.values()]), left_out


def _named(comparisons: list[Comparison]) -> list[Comparison]:
    """With names that tell them apart: by settings of the data, then by its file or folder, then by its checksum."""
    names = [comparison.dataset for comparison in comparisons]
    for about in (_settings, _place, _checksum):
        twins = [place for place, name in enumerate(names) if names.count(name) > 1]
        facts = {place: about(comparisons[place].runs[0]) for place in twins}
        for place in twins:
            rivals = [facts[other] for other in twins if comparisons[other].dataset == comparisons[place].dataset]
            told = [key for key in facts[place] if any(rival.get(key) != facts[place][key] for rival in rivals)]
            names[place] = ", ".join([names[place], *(f"{key}={facts[place][key]}" for key in told)])
    return [replace(comparison, name=name) for comparison, name in zip(comparisons, names, strict=True)]


def _settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in flat(run.config["data"]).items() if key not in PLACES}


def _place(run: Run) -> dict[str, Any]:
    data = run.config["data"]
    return {key: Path(str(data[key])).name for key in PLACES if data.get(key)}


def _checksum(run: Run) -> dict[str, Any]:
    return {"checksum": str(run.environment.get("data_checksum"))[:8]}


def _data(folder: RunFolder) -> str:
    """What tells the data of runs apart: settings, but not where it lies, its checksum, and how much there is."""
    config, result = folder.read_config(), folder.result()
    environment = _json(folder.environment_file) or {}
    try:
        settings = {key: value for key, value in config["data"].items() if key != "root"}
        sizes = {split: metrics["n"] for split, metrics in result["splits"].items()}
        itemgetter("dataset", "seed", "selection", "seconds")(result)  # what a report cannot do without
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"The run in {str(folder.path)!r} is damaged: it does not say its {error}.") from error
    return json.dumps([settings, environment.get("data_checksum"), sizes], sort_keys=True, default=str)


def _comparison(folders: list[RunFolder]) -> Comparison:
    rows = _shorter(group_runs(folders))
    runs = [
        _run(folder, place, row.label if len(row.seeds) == 1 else f"{row.label}, seed {seed}")
        for place, row in enumerate(rows)
        for folder, seed in zip(row.folders, row.seeds, strict=True)
    ]
    return Comparison(runs[0].result["dataset"], rows, runs)


def _shorter(rows: list[Row]) -> list[Row]:
    """Labels without the folder of the preset, where all have the same and they stay apart."""
    short = [row.label.partition("/")[2] for row in rows]
    one = len({row.label.partition("/")[0] for row in rows}) == 1
    if not one or len(set(short)) < len(rows) or not all(short):
        return rows
    return [replace(row, label=label) for row, label in zip(rows, short, strict=True)]


def _run(folder: RunFolder, row: int, label: str) -> Run:
    explain = _json(folder.explain_file, EXPLAIN_VERSION)
    return Run(
        folder, row, label, folder.read_config(), folder.result(), folder.metrics(),
        _json(folder.environment_file) or {}, sound(explain) if explain else None,
        _json(folder.audit / "audit.json", AUDIT_VERSION),
    )  # fmt: skip


def _json(file: Path, version: int | None = None) -> dict[str, Any] | None:
    """None where there is no such file, one that cannot be read, or one of another version."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and version in (None, content.get("version"))
    return content if known else None


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Empty where there is no such file, or one that cannot be read."""
    try:
        return read_arrays(file)
    except RunError:
        return {}
