"""This module reads and writes every file of a run folder, and no other module opens one.

config.yaml       every setting
metrics.jsonl     one line for each epoch: phase, epoch, the terms of the loss, accuracies
result.json       the contract with other programs (RESULT_VERSION)
predictions.npz   logits, labels and groups of every evaluation split, and what its metrics know of the training groups
environment.json  commit, versions, device, seed, checksum of the data
checkpoint/       model.safetensors, encoder.safetensors where it is frozen, and state.pt while the run is not done
export/           model.onnx and model.pt2, where `sitar export` has written them
trackers/         what TensorBoard, W&B and MLflow keep of the run, where train.log names them
estimator.json    where an estimator of scikit-learn made the run: its class, parameters, classes and feature names
artifacts/        what a report shows and only a model can make: explain.json with .npz files, theory.json, audit/
done              written last

`RunFolder` writes these files, and reads them one by one. `Run` is a finished run, read once. Neither needs torch:
weights and checkpoints are bytes here, and every table and figure is rebuilt from a folder alone.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from sitar.earlier import todays_config
from sitar.errors import RunError
from sitar.fairness import group_columns, metric_frame
from sitar.files import LockedError, locked, read_npz, to_json, to_npz, write_atomic
from sitar.findings import (
    AUDIT_VERSION,
    EXPLAIN_VERSION,
    PARTS,
    RENAMED_PARTS,
    array_parts,
    arrays_fit,
    sound_parts,
    upgrade_audit,
    upgrade_explanation,
)
from sitar.splits import VAL, deciding_split

if TYPE_CHECKING:
    import numpy as np
    from fairlearn.metrics import MetricFrame
    from numpy.typing import NDArray

RESULT_VERSION = 1
LOCK = ".lock"
PLACES = ("data.root", "data.table", "data.file", "model.encoder_weights")  # settings that only say where files lie
INERT = ("train.log",)  # settings that change nothing of a run

EXPORTS = {"onnx": ".onnx", "torch": ".pt2"}  # format: ending of the file

Arrays = dict[str, "NDArray[Any]"]


class GroupResult(TypedDict):
    """This is the size and the accuracy of a group. An empty group has no accuracy."""

    n: int
    accuracy: float | None


class SplitResult(TypedDict):
    """These are the metrics of a split: fractions, or None where one does not exist. More of them may follow."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    n: int
    average: float | None
    worst_group: NotRequired[float | None]
    groups: NotRequired[dict[str, GroupResult]]
    intervals: NotRequired[dict[str, list[float] | None]]


class TaskResult(TypedDict):
    """This is what a model must know of its training data to be built again without it."""

    shape: list[int]
    class_counts: list[int]
    group_counts: NotRequired[list[int]]
    environments: NotRequired[int]


class Result(TypedDict):
    """This is result.json. Runs of early releases lack what is not required."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    version: int
    dataset: str
    method: NotRequired[str]
    needs_groups: NotRequired[bool]
    licence: NotRequired[str]  # of the data
    answers: NotRequired[int]  # to which the last layer was fitted again, besides the training data
    refit: NotRequired[dict[str, Any]]
    preset: NotRequired[str]
    seed: int
    selection: str
    selected_epoch: NotRequired[int | None]
    seconds: float
    classes: NotRequired[list[str]]
    attributes: NotRequired[dict[str, list[str]]]
    task: NotRequired[TaskResult]
    splits: dict[str, SplitResult]


_RESULT = TypeAdapter(Result)


@dataclass(frozen=True)
class RunFolder:
    """A run folder says where the files of a run lie, writes them, and reads each of them back."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    @property
    def predictions_file(self) -> Path:
        return self.path / "predictions.npz"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    @property
    def model_file(self) -> Path:
        return self.path / "checkpoint" / "model.safetensors"

    @property
    def encoder_file(self) -> Path:
        return self.path / "checkpoint" / "encoder.safetensors"

    @property
    def state_file(self) -> Path:
        return self.path / "checkpoint" / "state.pt"

    @property
    def trackers(self) -> Path:
        return self.path / "trackers"

    @property
    def estimator_file(self) -> Path:
        return self.path / "estimator.json"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    def export_file(self, format: str) -> Path:
        """Return the file that `sitar export` writes by default."""
        return self.path / "export" / f"model{EXPORTS[format]}"

    def exports(self) -> list[Path]:
        """Return the files that `sitar export` has written here."""
        return [file for file in map(self.export_file, EXPORTS) if file.is_file()]

    def weights(self) -> list[Path]:
        """Return the files of weights that a prediction needs."""
        return [self.model_file, *([self.encoder_file] if self.encoder_file.is_file() else [])]

    @property
    def explain_file(self) -> Path:
        return self.artifacts / "explain.json"

    @property
    def theory_file(self) -> Path:
        return self.artifacts / "theory.json"

    @property
    def audit_file(self) -> Path:
        return self.artifacts / "audit" / "audit.json"

    def part_file(self, name: str) -> Path:
        """Return the file with the arrays of a part of explain.json."""
        return self.artifacts / f"{name}.npz"

    @property
    def is_started(self) -> bool:
        return self.config_file.is_file()

    @property
    def is_done(self) -> bool:
        return (self.path / "done").is_file()

    @property
    def is_of_an_estimator(self) -> bool:
        """Return whether an estimator of scikit-learn made the run, from arrays in memory."""
        return self.estimator_file.exists()

    @property
    def has_encoder(self) -> bool:
        return self.encoder_file.is_file()

    @property
    def is_explained(self) -> bool:
        return self.explain_file.is_file()

    # Before and while a run trains

    def refuse_used(self) -> None:
        """Refuse a folder that already holds something.

        A process that was killed while it made the folder leaves a lock or a part of a configuration. These do not
        count.
        """
        ours = (f".{self.config_file.name}.", LOCK)
        try:
            if self.path.exists() and any(not entry.name.startswith(ours) for entry in self.path.iterdir()):
                raise RunError(
                    f"The run folder {str(self.path)!r} is already used. Choose another with --out, or continue that "
                    "run with --resume. Nothing was overwritten."
                )
        except OSError as error:
            raise self._cannot_write(error) from error

    def create(self, config: Mapping[str, Any]) -> None:
        """Make the folder and write its configuration. A folder that already holds something is refused."""
        self.refuse_used()
        self.write_config(config)

    def write_config(self, config: Mapping[str, Any]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomic(self.config_file, yaml.safe_dump(dict(config), sort_keys=False).encode())
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> RunError:
        return RunError(
            f"Cannot write the run folder {str(self.path)!r}: {error.strerror or error}. Choose another with --out."
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing into this folder. A killed process leaves no lock behind."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = locked(self.path / LOCK, wait=False)
            lock.__enter__()
        except LockedError as error:
            raise RunError(f"Another process is writing into the run folder {str(self.path)!r}.") from error
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        write_atomic(self.environment_file, to_json(environment))

    def write_tracker_ids(self, ids: Mapping[str, str]) -> None:
        """Write what each tracker calls this run, so that a resumed run continues it there."""
        self.trackers.mkdir(exist_ok=True)
        write_atomic(self.trackers / "ids.json", to_json(ids))

    def tracker_ids(self) -> dict[str, str]:
        """Return what each tracker calls this run. It is empty for a new run, and where it cannot be read."""
        try:
            ids = json.loads((self.trackers / "ids.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(name): str(value) for name, value in ids.items()} if isinstance(ids, dict) else {}

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def sync_metrics(self) -> None:
        """Bring the lines to the disk before a checkpoint that relies on them is written."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            os.fsync(file.fileno())

    def keep_metrics(self, count: int) -> None:
        """Drop the lines that were logged after the checkpoint from which a run is resumed."""
        lines = self.metrics_file.read_bytes().splitlines(keepends=True) if self.metrics_file.exists() else []
        if len(lines) < count:
            raise RunError(
                f"{str(self.metrics_file)!r} has {len(lines)} lines where the checkpoint remembers {count}: it was "
                "cut or replaced. Start the run again in another folder."
            )
        write_atomic(self.metrics_file, b"".join(lines[:count]))

    def write_model(self, weights: bytes) -> None:
        self._write_checkpoint(self.model_file, weights)

    def write_encoder(self, weights: bytes) -> None:
        """Write the weights of a frozen encoder, so that the run needs no other copy of them."""
        self._write_checkpoint(self.encoder_file, weights)

    def write_state(self, state: bytes) -> None:
        """Write all that a stopped run needs to continue."""
        self._write_checkpoint(self.state_file, state)

    def _write_checkpoint(self, file: Path, content: bytes) -> None:
        file.parent.mkdir(exist_ok=True)
        write_atomic(file, content)

    def finish(self, result: Mapping[str, Any], predictions: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Write what a finished run leaves, and mark the run as done."""
        if predictions is not None:
            write_atomic(self.predictions_file, to_npz(predictions))
        write_atomic(self.result_file, to_json(result))
        write_atomic(self.path / "done", b"")
        self.state_file.unlink(missing_ok=True)
        with suppress(OSError):  # Windows keeps a file that is open
            (self.path / LOCK).unlink(missing_ok=True)  # a process that locks it again sees that the run is done

    # What a run has left

    def read_config(self) -> dict[str, Any]:
        """Return the settings of the run, in today's words where an earlier release wrote them."""
        if not self.path.is_dir():
            raise RunError(f"There is no run folder {str(self.path)!r}.")
        if not self.config_file.is_file():
            raise RunError(f"{str(self.path)!r} is not a run folder: it has no config.yaml.")
        try:
            config = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise RunError(f"{str(self.config_file)!r} cannot be read: {error}.") from error
        if not isinstance(config, dict):
            raise RunError(f"{str(self.config_file)!r} holds no settings.")
        return todays_config(config)

    def environment(self) -> dict[str, Any] | None:
        """Return environment.json, or None if there is none yet."""
        if not self.environment_file.exists():
            return None
        try:
            environment = json.loads(self.environment_file.read_text(encoding="utf-8"))
            return {**environment, "data_checksum": str(environment["data_checksum"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{str(self.environment_file)!r} cannot be read: the run is damaged.") from error

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl. A line that a kill has cut is left out."""
        if not self.metrics_file.exists():
            return []
        try:
            lines = self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)
            values = [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise RunError(f"{str(self.metrics_file)!r} is damaged: {error}.") from error
        if not all(isinstance(value, dict) for value in values):
            raise RunError(f"{str(self.metrics_file)!r} is damaged: a line of it holds no values by name.")
        return values

    def model(self) -> bytes:
        return self._bytes(self.model_file)

    def encoder(self) -> bytes | None:
        """Return the weights of the frozen encoder, or None if the run has not kept any."""
        return self._bytes(self.encoder_file) if self.encoder_file.exists() else None

    def state(self) -> bytes | None:
        """Return the last checkpoint of an unfinished run, or None if it was stopped before the first."""
        return self._bytes(self.state_file) if self.state_file.exists() else None

    def _bytes(self, file: Path) -> bytes:
        try:
            return file.read_bytes()
        except OSError as error:
            raise RunError(f"{str(file)!r} cannot be read: {error.strerror or error}.") from error

    def result(self) -> Result:
        """Return result.json of a finished run."""
        if not self.is_done:
            self.read_config()
            raise RunError(f"The run in {str(self.path)!r} is not finished. Continue it with --resume.")
        try:
            result = json.loads(self.result_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{str(self.result_file)!r} cannot be read: {error}.") from error
        if not isinstance(result, dict) or result.get("version") != RESULT_VERSION:
            raise RunError(
                f"{str(self.result_file)!r} is not of version {RESULT_VERSION}, the only one this release reads."
            )
        try:
            _RESULT.validate_python(result, strict=True)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise RunError(
                f"{str(self.result_file)!r} is damaged: {where} is not as it should be ({problem['msg']})."
            ) from error
        return result  # type: ignore[return-value]

    def predictions(self) -> Arrays:
        """Return logits, labels and groups by split, such as "test/logits"."""
        return self._arrays(self.predictions_file)

    def to_metricframe(
        self,
        split: str | None = None,
        *,
        metrics: Mapping[str, Callable[..., Any]] | None = None,
        by: Sequence[str] | None = None,
    ) -> MetricFrame:
        """Return a `fairlearn.metrics.MetricFrame` of the predictions of a finished run (needs the extra fairlearn).

        `split` is by default the one that a model is judged by. `metrics` are functions of labels and predictions by
        name; by default accuracy and the number of samples. `by` names the columns that make groups: "label" and the
        attribute by default, which are the groups of result.json. Labels and predictions are numbers of classes.
        """
        result = self.result()
        split = split or deciding_split(result["splits"]) or VAL
        if split not in result["splits"]:
            raise RunError(f"{str(self.path)!r} has no split {split!r}. It has {', '.join(result['splits'])}.")
        arrays = self.predictions()
        names = list(result["splits"][split].get("groups", {}))
        if f"{split}/y" not in arrays or f"{split}/group" not in arrays or not names:
            raise RunError(
                f"{str(self.path)!r} keeps no groups of the split {split!r}. Groups need an attribute, such as "
                "data.attribute_column of a table."
            )
        columns = group_columns(arrays[f"{split}/group"], names, result.get("classes"), result.get("attributes"))
        return metric_frame(arrays[f"{split}/y"], arrays[f"{split}/logits"].argmax(1), columns, metrics, by)

    def _arrays(self, file: Path) -> Arrays:
        try:
            return read_npz(file)
        except ValueError as error:
            raise RunError(f"{error}.") from error

    # The run of an estimator, which keeps its files in memory

    def files(self) -> dict[str, bytes]:
        """Return every file of a finished run by its path in the folder."""
        paths = sorted(path for path in self.path.rglob("*") if path.is_file())
        return {path.relative_to(self.path).as_posix(): self._bytes(path) for path in paths}

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write the files of a finished run into this folder, which must be new or empty, `done` last."""
        self.refuse_used()
        try:
            for name in sorted(files, key=lambda name: name == "done"):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomic(self.path / name, files[name])
        except OSError as error:
            raise self._cannot_write(error) from error

    def write_estimator(self, description: Mapping[str, Any]) -> None:
        write_atomic(self.estimator_file, to_json(description))

    def estimator(self) -> dict[str, Any]:
        """Return the description of the estimator that made the run."""
        self.result()  # refuses what is no finished run
        if not self.estimator_file.exists():
            raise RunError(
                f"The run in {str(self.path)!r} was not made by an estimator. `sitar.load` reads it as a model."
            )
        try:
            return dict(json.loads(self._bytes(self.estimator_file)))
        except (ValueError, TypeError) as error:
            raise RunError(f"{str(self.estimator_file)!r} is damaged: {error}.") from error

    # What commands find out about a finished run

    def write_explanation(self, explanation: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Any]]) -> None:
        """Write explain.json and the arrays of its parts.

        Whenever explain.json is there, it belongs to the arrays that are there.
        """
        self.artifacts.mkdir(exist_ok=True)
        self.explain_file.unlink(missing_ok=True)
        for name in array_parts():
            if name in arrays:
                write_atomic(self.part_file(name), to_npz(arrays[name]))
            else:
                self.part_file(name).unlink(missing_ok=True)
        for old in RENAMED_PARTS:
            self.part_file(old).unlink(missing_ok=True)
        write_atomic(self.explain_file, to_json(explanation))

    def explanation(self) -> dict[str, Any]:
        """Return explain.json. Old names of its parts are replaced by today's."""
        content = self._findings(self.explain_file, (1, EXPLAIN_VERSION), explain_command(self))
        return upgrade_explanation(content)

    def part(self, name: str) -> tuple[dict[str, Any], Arrays]:
        """Return explain.json and the arrays of one of its parts. A part that is missing is refused with the reason."""
        explanation = self.explanation()
        if not explanation.get(name):
            reasons = explanation.get("reasons")
            reason = (reasons if isinstance(reasons, Mapping) else {}).get(name, "it was left out")
            raise RunError(f"{str(self.path)!r} has no {name}: {reason}")
        try:
            return explanation, self.part_arrays(name)
        except RunError as error:
            raise RunError(f"{error} `{explain_command(self)}` makes it.") from error

    def part_arrays(self, name: str) -> Arrays:
        old = {new: old for old, new in RENAMED_PARTS.items()}.get(name, name)
        file = self.part_file(name)
        return self._arrays(file if file.exists() else self.part_file(old))

    def write_theory(self, theory: Mapping[str, Any], figure: bytes) -> Path:
        """Write theory.json and its figure, a PNG file. Return the path of the figure."""
        self.artifacts.mkdir(exist_ok=True)
        write_atomic(self.theory_file, to_json(theory))
        write_atomic(self.theory_file.with_suffix(".png"), figure)
        return self.theory_file.with_suffix(".png")

    def write_audit(self, audit: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Write audit.json and its pictures as arrays."""
        place = self.audit_file.parent
        place.mkdir(parents=True, exist_ok=True)
        write_atomic(place / "pictures.npz", to_npz(arrays))
        write_atomic(self.audit_file, to_json(audit))

    @property
    def is_audited(self) -> bool:
        return self.audit_file.is_file()

    def audit(self) -> dict[str, Any]:
        """Return audit.json of a run that was audited."""
        command = shlex.join(["sitar", "audit", str(self.path)])
        return upgrade_audit(self._findings(self.audit_file, (1, AUDIT_VERSION), command))

    def audit_arrays(self) -> Arrays:
        return self._arrays(self.audit_file.parent / "pictures.npz")

    def write_audit_figures(self, figures: Mapping[str, bytes]) -> list[Path]:
        """Write PNG files by name beside audit.json. The figures of an earlier audit are removed."""
        place = self.audit_file.parent
        for old in place.glob("*.png"):
            old.unlink()
        for name, content in figures.items():
            write_atomic(place / name, content)
        return [place / name for name in figures]

    def _findings(self, file: Path, versions: tuple[int, ...], made_by: str) -> dict[str, Any]:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{str(file)!r} cannot be read. `{made_by}` makes it.") from error
        if not isinstance(content, dict) or content.get("version") not in versions:
            readable = " or ".join(map(str, versions))
            raise RunError(f"{str(file)!r} is not of version {readable}, which this release reads.")
        return content


@dataclass(frozen=True)
class Run:
    """A `Run` is a finished run, read from its folder once.

    Settings and result are read at once, and a run without them is refused. The rest is read when it is asked for. What
    is optional and damaged counts as missing: `environment` is then empty, `explanation` and `audit` are None.
    """

    folder: RunFolder
    config: dict[str, Any]
    result: Result

    @classmethod
    def read(cls, folder: RunFolder) -> Run:
        return cls(folder, folder.read_config(), folder.result())

    @property
    def seed(self) -> int:
        return self.result["seed"]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return self.folder.metrics()

    @cached_property
    def environment(self) -> dict[str, Any]:
        try:
            return self.folder.environment() or {}
        except RunError:
            return {}

    @cached_property
    def explanation(self) -> dict[str, Any] | None:
        try:
            return sound_parts(self.folder.explanation())
        except RunError:
            return None

    @cached_property
    def audit(self) -> dict[str, Any] | None:
        try:
            return self.folder.audit()
        except RunError:
            return None

    def part(self, name: str) -> dict[str, Any] | None:
        """Return a part of the explanation, or None if there is none."""
        return (self.explanation or {}).get(name)

    def part_arrays(self, name: str) -> Arrays:
        """Return the arrays of a part of the explanation. The result is empty if there are none, or they do not fit."""
        if name not in self._part_arrays:
            values, arrays = self.part(name), {}
            if values is not None and PARTS[name].has_arrays:
                with suppress(RunError):
                    arrays = self.folder.part_arrays(name)
            self._part_arrays[name] = arrays if values and arrays_fit(PARTS[name], values, arrays) else {}
        return self._part_arrays[name]

    @cached_property
    def _part_arrays(self) -> dict[str, Arrays]:
        return {}

    @cached_property
    def _predictions(self) -> Arrays:
        try:
            return self.folder.predictions()
        except RunError:
            return {}

    @cached_property
    def classes(self) -> list[str]:
        """Return the names of the classes. Runs of early releases have none, so theirs are numbered."""
        widths = [array.shape[1] for name, array in self._predictions.items() if name.endswith("/logits")]
        return self.result.get("classes") or [f"class {i}" for i in range(max(widths, default=2))]

    def class_name(self, label: int) -> str:
        """Return the name of a class. A label that no class has is shown as a number."""
        return self.classes[label] if label < len(self.classes) else f"class {label}"

    def logits(self, split: str) -> NDArray[np.float32]:
        import numpy as np

        return self._predictions.get(f"{split}/logits", np.zeros((0, 2), np.float32))

    def labels(self, split: str) -> NDArray[np.int64]:
        import numpy as np

        return self._predictions.get(f"{split}/y", np.zeros(0, np.int64))

    def is_right(self, split: str) -> NDArray[np.bool_]:
        """Return whether each sample of a split is classified correctly."""
        return self.logits(split).argmax(1) == self.labels(split)

    def predictions(self, split: str) -> Arrays:
        """Return what is stored of a split, by name, such as "logits". It is empty if there is nothing."""
        of_split = f"{split}/"
        return {name.removeprefix(of_split): array for name, array in self._predictions.items()
                if name.startswith(of_split)}  # fmt: skip

    @property
    def data_checksum(self) -> str | None:
        return self.environment.get("data_checksum")


def explain_command(*folders: RunFolder, axes: RunFolder | None = None) -> str:
    """Return the shell command that explains runs, on the axes of one of them if it is named."""
    shared = [] if axes is None else ["--axes", str(axes.path)]
    return shlex.join(["sitar", "explain", *(str(folder.path) for folder in folders), *shared])


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings by their full name, such as method.alpha."""
    settings: dict[str, Any] = {}
    for key, value in config.items():
        settings |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return settings


def preset_name(preset: str) -> str:
    """Return the name of a preset. A file of a user's own is named without its folder."""
    return Path(preset).name if preset.endswith((".yaml", ".yml")) else preset


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by their full name, without those that only say where files lie, or change no result.

    Data that has moved is the same data: its checksum tells. For a file of weights, the name counts and the folder does
    not.
    """
    settings = flat(config)
    kept = {key: value for key, value in settings.items() if key not in (*PLACES, *INERT)}
    if weights := settings.get("model.encoder_weights"):
        kept["model.encoder_weights"] = Path(str(weights)).name
    return kept


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return `key: mine here, theirs there` for every setting in which two runs differ, except for where files lie.

    Settings that change no result do not count either.
    """
    a, b = without_places(mine), without_places(theirs)
    return [
        f"{key}: {a.get(key)!r} asked for, {b.get(key)!r} in the folder"
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    ]
