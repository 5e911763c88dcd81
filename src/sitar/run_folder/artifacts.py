"""Keep what commands make of a finished run: `sitar explain`, `sitar theory`, `sitar audit` and `sitar export`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sitar.errors import RunError
from sitar.files import to_json, to_npz
from sitar.findings import (
    AUDIT_VERSION,
    EXPLAIN_VERSION,
    RENAMED_PARTS,
    array_parts,
    upgrade_audit,
    upgrade_explanation,
)
from sitar.integrity import checksum, sums_line
from sitar.run_folder.checksums import Arrays, Checked
from sitar.run_folder.layout import Layout


class Artifacts(Checked):
    """These are the writers and readers of the folders `artifacts` and `export`."""

    def write_explanation(self, explanation: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Any]]) -> None:
        """Write explain.json and the arrays of its parts.

        Whenever explain.json is there, it belongs to the arrays that are there.
        """
        with self.lock(wait=True):
            self.artifacts.mkdir(exist_ok=True)
            self._refuse_link(self.explain_file)
            self.explain_file.unlink(missing_ok=True)
            for name in {*array_parts(), *RENAMED_PARTS} - arrays.keys():
                self.part_file(name).unlink(missing_ok=True)
            parts = {self.part_file(name): to_npz(arrays[name]) for name in array_parts() if name in arrays}
            self._write(parts | {self.explain_file: to_json(explanation)})

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

    def write_export(self, format: str, content: bytes) -> None:
        """Write an exported model, and its checksum beside it."""
        file = self.export_file(format)
        with self.lock(wait=True):
            file.parent.mkdir(exist_ok=True)
            self._refuse_link(file)
            self.sums_of(file).unlink(missing_ok=True)  # before the file that it vouches for
            self._write({file: content, self.sums_of(file): sums_line(file.name, checksum(content))})

    def write_theory(self, theory: Mapping[str, Any], figure: bytes) -> Path:
        """Write theory.json and its figure, a PNG file. Return the path of the figure."""
        with self.lock(wait=True):
            self.artifacts.mkdir(exist_ok=True)
            self._write({self.theory_file: to_json(theory), self.theory_file.with_suffix(".png"): figure})
        return self.theory_file.with_suffix(".png")

    def write_audit(self, audit: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Write audit.json and its pictures as arrays."""
        place = self.audit_file.parent
        with self.lock(wait=True):
            self.artifacts.mkdir(exist_ok=True)
            self._refuse_link(place)
            place.mkdir(exist_ok=True)
            self._write({place / "pictures.npz": to_npz(arrays), self.audit_file: to_json(audit)})

    def audit(self) -> dict[str, Any]:
        """Return audit.json of a run that was audited."""
        command = shlex.join(["sitar", "audit", str(self.path)])
        return upgrade_audit(self._findings(self.audit_file, (1, AUDIT_VERSION), command))

    def audit_arrays(self) -> Arrays:
        return self._arrays(self.audit_file.parent / "pictures.npz")

    def write_audit_figures(self, figures: Mapping[str, bytes]) -> list[Path]:
        """Write PNG files by name beside audit.json. The figures of an earlier audit are removed."""
        place = self.audit_file.parent
        self._refuse_link(self.audit_file)
        for old in place.glob("*.png"):
            old.unlink()
        for name, content in figures.items():
            self._replace(place / name, content)
        return [place / name for name in figures]

    def _findings(self, file: Path, versions: tuple[int, ...], made_by: str) -> dict[str, Any]:
        try:
            content = json.loads(self._bytes(file))
        except (RunError, ValueError, RecursionError) as error:
            raise RunError(f"{str(file)!r} cannot be read ({error}). `{made_by}` makes it.") from error
        if not isinstance(content, dict) or content.get("version") not in versions:
            readable = " or ".join(map(str, versions))
            raise RunError(f"{str(file)!r} is not of version {readable}, which this release reads.")
        return content


def explain_command(*folders: Layout, axes: Layout | None = None) -> str:
    """Return the shell command that explains runs, on the axes of one of them if it is named."""
    shared = [] if axes is None else ["--axes", str(axes.path)]
    return shlex.join(["sitar", "explain", *(str(folder.path) for folder in folders), *shared])
