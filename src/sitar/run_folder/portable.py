"""Carry the files of a finished run in memory: an estimator of scikit-learn keeps its run there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sitar.errors import RunError
from sitar.files import to_json
from sitar.run_folder.contents import Contents
from sitar.run_folder.layout import LOCK
from sitar.run_folder.training import Training


class Portable(Training, Contents):
    """A finished run can be taken out of its folder and put into another. An estimator describes itself in it."""

    def files(self) -> dict[str, bytes]:
        """Return every file of a finished run by its path in the folder. Links that lead out of it are left out."""
        found = (path for path in self.path.rglob("*") if path.is_file() and path.name != LOCK)
        paths = sorted(path for path in found if self.holds(path))
        return {path.relative_to(self.path).as_posix(): self._bytes(path) for path in paths}

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write the files of a finished run into this folder, which must be new or empty, `done` last."""
        with self.lock():
            self.refuse_used()
            try:
                for name in sorted(files, key=lambda name: name == "done"):
                    (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                    self._replace(self.path / name, files[name])
            except OSError as error:
                raise self._cannot_write(error) from error

    def write_estimator(self, description: Mapping[str, Any]) -> None:
        self._write({self.estimator_file: to_json(description)})

    def estimator(self) -> dict[str, Any]:
        """Return the description of the estimator that made the run."""
        self.result()  # refuses what is no finished run
        if not self.estimator_file.exists():
            raise RunError(
                f"The run in {str(self.path)!r} was not made by an estimator. `sitar.load` reads it as a model."
            )
        try:
            return dict(json.loads(self._bytes(self.estimator_file)))
        except (ValueError, TypeError, RecursionError) as error:
            raise RunError(f"{str(self.estimator_file)!r} is damaged: {error}.") from error
