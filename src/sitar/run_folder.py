"""What a run leaves on disk, and how to read it back. Needs no torch: tables and figures are rebuilt from this alone.

config.yaml       every setting
metrics.jsonl     one line an epoch: phase, epoch, the terms of the loss, accuracies
result.json       the contract with other programs (RESULT_VERSION)
predictions.npz   logits, labels and groups of every evaluation split
environment.json  commit, versions, device, seed, checksum of the data
checkpoint/       model.safetensors, encoder.safetensors where it is frozen, and state.pt while the run is not done
artifacts/        what a report shows and only a model can make
done              written last
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sitar.errors import RunError

RESULT_VERSION = 1
AUDIT_VERSION = 1  # of artifacts/audit/audit.json
EXPLAIN_VERSION = 1  # of artifacts/explain.json


def write_atomic(path: Path, content: bytes) -> None:
    """Either the old file or the whole new one is there, whatever happens."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run folder and the writing of its small files."""

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
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def audit(self) -> Path:
        return self.artifacts / "audit"

    @property
    def explain_file(self) -> Path:
        return self.artifacts / "explain.json"

    @property
    def traversals_file(self) -> Path:
        return self.artifacts / "traversals.npz"

    @property
    def gradcam_file(self) -> Path:
        return self.artifacts / "gradcam.npz"

    @property
    def wrong_file(self) -> Path:
        return self.artifacts / "wrong.npz"

    @property
    def is_done(self) -> bool:
        return (self.path / "done").is_file()

    def create(self, config: Mapping[str, Any]) -> None:
        """Make the folder and write its configuration; refuse a folder that already holds something.

        What a kill at this very moment leaves behind, an unfinished configuration, does not count.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(not entry.name.startswith(f".{self.config_file.name}.") for entry in self.path.iterdir()):
                raise RunError(
                    f"The run folder {str(self.path)!r} is already used. Choose another with --out, or continue that "
                    "run with --resume. Nothing was overwritten."
                )
            write_atomic(self.config_file, yaml.safe_dump(dict(config), sort_keys=False).encode())
        except OSError as error:
            raise RunError(
                f"Cannot write the run folder {str(self.path)!r}: {error.strerror or error}. Choose another with --out."
            ) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing into this folder; a killed process leaves no lock behind."""
        with self.config_file.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunError(f"Another process is writing into the run folder {str(self.path)!r}.") from error
            yield

    def read_config(self) -> dict[str, Any]:
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
        return config

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def sync_metrics(self) -> None:
        """Have the lines on the disk before a checkpoint that counts on them."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            os.fsync(file.fileno())

    def keep_metrics(self, count: int) -> None:
        """Drop what was logged after the checkpoint that a resumed run starts from."""
        lines = self.metrics_file.read_bytes().splitlines(keepends=True) if self.metrics_file.exists() else []
        if len(lines) < count:
            raise RunError(
                f"{str(self.metrics_file)!r} has {len(lines)} lines where the checkpoint remembers {count}: it was "
                "cut or replaced. Start the run again in another folder."
            )
        write_atomic(self.metrics_file, b"".join(lines[:count]))

    def metrics(self) -> list[dict[str, Any]]:
        if not self.metrics_file.exists():
            return []
        try:
            lines = self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)
            found = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may have cut the last one
        except ValueError as error:
            raise RunError(f"{str(self.metrics_file)!r} is damaged: {error}.") from error
        if not all(isinstance(line, dict) for line in found):
            raise RunError(f"{str(self.metrics_file)!r} is damaged: a line of it holds no values by name.")
        return found

    def finish(self, result: Mapping[str, Any]) -> None:
        write_atomic(self.result_file, to_json(result))
        write_atomic(self.path / "done", b"")

    def result(self) -> dict[str, Any]:
        """result.json of a finished run."""
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
        return result


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """`key: mine here, theirs there` for every setting in which two configurations differ."""
    for key in sorted({*mine, *theirs}, key=str):
        a, b = mine.get(key), theirs.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key}: {a!r} asked for, {b!r} in the folder"
