"""Write what a run leaves while it trains, and mark it as done."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sitar.errors import RunError
from sitar.files import to_json, to_npz
from sitar.integrity import checksum, checksum_of
from sitar.run_folder.checksums import Checked
from sitar.run_folder.layout import LOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)


class Training(Checked):
    """These are the writers of a run that trains, in the order in which they are called."""

    def refuse_used(self) -> None:
        """Refuse a folder that already holds something.

        A process that was killed while it made the folder leaves a lock or a part of a configuration. These do not
        count.
        """
        ours = (f".{self.config_file.name}.", LOCK)
        try:
            if self.path.exists() and any(not entry.name.startswith(ours) for entry in self.path.iterdir()):
                found = ": it has a finished run" if self.is_done else ""
                rest = "" if self.is_done else ", or continue that run with --resume"
                raise RunError(
                    f"The run folder {str(self.path)!r} is already used{found}. Choose another with --out{rest}. "
                    "Nothing was overwritten."
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
            self._write({self.config_file: yaml.safe_dump(dict(config), sort_keys=False).encode()})
        except OSError as error:
            raise self._cannot_write(error) from error

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        self._write({self.environment_file: to_json(environment)})

    def write_tracker_ids(self, ids: Mapping[str, str]) -> None:
        """Write what each tracker calls this run, so that a resumed run continues it there."""
        self.trackers.mkdir(exist_ok=True)
        self._write({self.trackers / "ids.json": to_json(ids)})

    def tracker_ids(self) -> dict[str, str]:
        """Return what each tracker calls this run. It is empty for a new run, and where it cannot be read."""
        file = self.trackers / "ids.json"
        if not file.exists():
            return {}
        try:
            ids = json.loads(self._bytes(file))
        except (RunError, ValueError, RecursionError) as error:
            logger.warning("Trackers begin the run anew: %s", error)
            return {}
        return {str(name): str(value) for name, value in ids.items()} if isinstance(ids, dict) else {}

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def sync_metrics(self) -> str:
        """Bring the lines to the disk before a checkpoint that relies on them is written. Return their checksum."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            os.fsync(file.fileno())
        return checksum_of(self.metrics_file)

    def kept_metrics(self, count: int, expected: str | None = None) -> bytes:
        """Return the lines that a checkpoint remembers, by their number and, if it is known, their checksum."""
        lines = self._read_bytes(self.metrics_file).splitlines(keepends=True) if self.metrics_file.exists() else []
        kept = b"".join(lines[:count])
        if len(lines) < count:
            raise RunError(
                f"{str(self.metrics_file)!r} has {len(lines)} lines where the checkpoint remembers {count}: it was "
                "cut or replaced. Start the run again in another folder."
            )
        if expected is not None and checksum(kept) != expected:
            raise RunError(
                f"{str(self.metrics_file)!r} is damaged: its first {count} lines are not those that were written, by "
                "the checksum in the checkpoint. Start the run again in another folder."
            )
        return kept

    def keep_metrics(self, count: int) -> None:
        """Drop the lines that were logged after the checkpoint from which a run is resumed."""
        self._replace(self.metrics_file, self.kept_metrics(count))

    def write_model(self, weights: bytes) -> None:
        self._write_checkpoint(self.model_file, weights)

    def write_encoder(self, weights: bytes) -> None:
        """Write the weights of a frozen encoder, so that the run needs no other copy of them."""
        self.encoder_file.parent.mkdir(exist_ok=True)
        self._write({self.encoder_file: weights})

    def write_state(self, state: bytes) -> None:
        """Write all that a stopped run needs to continue."""
        self._write_checkpoint(self.state_file, state)

    def _write_checkpoint(self, file: Path, content: bytes) -> None:
        file.parent.mkdir(exist_ok=True)
        self._replace(file, content)

    def finish(self, result: Mapping[str, Any], predictions: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Write what a finished run leaves, and mark the run as done."""
        written = {} if predictions is None else {self.predictions_file: to_npz(predictions)}
        written[self.result_file] = to_json(result)
        for file, content in written.items():
            self._replace(file, content)
        sums = {file: checksum(content) for file, content in written.items()}  # of what was meant, not of what is there
        left = [self.config_file, self.metrics_file, self.result_file, self.predictions_file, self.environment_file]
        left += [self.model_file, self.encoder_file]
        noted = self._noted()  # of what was written when the run began
        anew = [self.model_file, self.metrics_file]  # which are written without a note
        new = [file for file in left if file not in sums and (file in anew or self._name(file) not in noted)]
        self._note(sums | {file: checksum_of(file) for file in new if file.is_file()}, self.done_file)
        self.state_file.unlink(missing_ok=True)
        self.unfinished_file.unlink(missing_ok=True)
        with suppress(OSError):  # Windows keeps a file that is open
            (self.path / LOCK).unlink(missing_ok=True)  # a process that locks it again sees that the run is done
