"""Say where each file of a run lies, and which of them are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOCK = ".lock"
EXPORTS = {"onnx": ".onnx", "torch": ".pt2"}  # format: ending of the file


def folder_names(paths: Sequence[str | Path]) -> list[str]:
    """Name run folders by what tells them apart: their paths without the folder in which all of them lie."""
    given, places = [str(path) for path in paths], [os.path.abspath(path) for path in paths]
    try:
        shared = os.path.commonpath([os.path.dirname(place) for place in places])
    except ValueError:  # they lie on several drives of Windows
        return given
    return [os.path.relpath(place, shared) for place in places] if len(given) > 1 else given


@dataclass(frozen=True)
class Layout:
    """A layout has the paths of all files of a run. It opens none of them."""

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

    @staticmethod
    def sums_of(file: Path) -> Path:
        """Return the file beside an exported one that `sha256sum -c` reads."""
        return file.with_name(f"{file.name}.sha256")

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
    def done_file(self) -> Path:
        return self.path / "done"

    @property
    def unfinished_file(self) -> Path:
        return self.path / "unfinished"

    def holds(self, file: Path) -> bool:
        """Return whether a file lies in this folder, and is no link that leads out of it."""
        return file.resolve().is_relative_to(self.path.resolve())

    @property
    def is_started(self) -> bool:
        return self.config_file.is_file()

    @property
    def is_done(self) -> bool:
        return self.done_file.is_file()

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

    @property
    def is_audited(self) -> bool:
        return self.audit_file.is_file()
