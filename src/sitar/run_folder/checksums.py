"""Read and write files of a run: whole, within bounds, and compared with the checksums in `done` or `unfinished`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sitar.errors import RunError
from sitar.files import MOST, read_npz, read_regular, to_json, write_atomic
from sitar.integrity import checksum
from sitar.run_folder.lock import Lockable

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_TEXT = 2**26  # bytes of a file of settings, figures or findings: as values they take twenty times as much
WEIGHTS = (".safetensors", ".pt", ".onnx", ".pt2")  # which take as much memory as they have bytes

Arrays = dict[str, "NDArray[Any]"]


class Checked(Lockable):
    """Files have checksums in `done`, or before that in `unfinished`. They are compared whenever a file is read."""

    def _write(self, files: Mapping[Path, bytes]) -> None:
        """Write files, and note their checksums.

        The old checksums go first. A process that is killed in between leaves files that cannot be compared, and none
        that is wrongly called damaged.
        """
        if not self._noted().keys().isdisjoint(map(self._name, files)):
            self._note(dict.fromkeys(files))
        for file, content in files.items():
            self._replace(file, content)
        self._note({file: checksum(content) for file, content in files.items()})

    def _note(self, sums: Mapping[Path, str | None], into: Path | None = None) -> None:
        """Note the checksums of files, or forget those that are given as None. A folder without a run has no notes."""
        if not self.is_started and into is None:
            return
        noted = self._noted() | {self._name(file): value for file, value in sums.items()}
        kept = {name: value for name, value in noted.items() if value is not None}
        self._replace(into or self._sums_file, to_json({"sha256": kept}))

    @property
    def _sums_file(self) -> Path:
        return self.done_file if self.is_done else self.unfinished_file

    def _noted(self) -> dict[str, Any]:
        """Return the checksums of files by name. A folder of an early release has none: its files are not compared."""
        file = self._sums_file
        if not file.is_file() or not (content := self._read_bytes(file)):
            return {}
        try:
            return dict(json.loads(content)["sha256"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"{str(file)!r} is damaged: it should hold the checksums of the run's files. Bring the run "
                "from a copy. If you trust the other files, empty this one: they are then read without a check."
            ) from error

    def compare(self, file: Path) -> None:
        """Refuse a file that is not what was written, by its checksum."""
        self._bytes(file)

    def _name(self, file: Path) -> str:
        return file.relative_to(self.path).as_posix()

    def _bytes(self, file: Path) -> bytes:
        """Read a file, and compare it with its checksum, if it has one."""
        for _ in range(2):  # another process may write between the two: then the second look agrees
            content = self._read_bytes(file)
            expected = self._noted().get(self._name(file))
            if expected is None or expected == checksum(content):
                return content
        raise RunError(
            f"{str(file)!r} is damaged: it is not what was written, by the checksum in {str(self._sums_file)!r}. "
            f"Bring the run from a copy. If you have changed the file yourself, remove the line {self._name(file)!r} "
            f"from `{self._sums_file.name}`."
        )

    def _read_bytes(self, file: Path) -> bytes:
        try:
            return read_regular(file, MOST if file.suffix == ".npz" else None if file.suffix in WEIGHTS else MOST_TEXT)
        except ValueError as error:
            raise RunError(f"{error}.") from error
        except OSError as error:
            raise RunError(f"{str(file)!r} cannot be read: {error.strerror or error}.") from error

    def _arrays(self, file: Path) -> Arrays:
        try:
            return read_npz(file, self._bytes(file))
        except ValueError as error:
            raise RunError(f"{error}.") from error

    def _replace(self, file: Path, content: bytes) -> None:
        self._refuse_link(file)
        write_atomic(file, content)

    def _refuse_link(self, file: Path) -> None:
        """Refuse to change a file outside of this folder. One from a stranger may hold links that lead there."""
        if not file.parent.resolve().is_relative_to(self.path.resolve()):
            raise RunError(f"{str(file.parent)!r} leads out of the run folder. Nothing is written there.")
