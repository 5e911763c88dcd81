"""This module reads and writes the files of a sweep folder, beside its run folders.

sweep.json    the record of the sweep (SWEEP_VERSION) with a checksum, written again whenever a run ends
sweep.png     its figure; sweep.svg is the same for a paper
logs/         what each run printed
optuna.db     the trials of a search, in Optuna's own format
trials.json   the same trials with a checksum, by which optuna.db is compared when a search continues
.lock         held by the process that works here, which it names
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, FiniteFloat, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from sitar.errors import RunError
from sitar.files import read_regular, to_json, write_atomic
from sitar.integrity import sealed, unsealed
from sitar.locks import LockedError, locked
from sitar.registry import metrics

SWEEP_VERSION = 1
MOST = 2**26  # bytes of a record


class _Values(TypedDict):
    mean: FiniteFloat
    std: FiniteFloat | None


class _PointRecord(TypedDict):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    name: str
    values: dict[str, Any]
    control: bool
    needs_groups: NotRequired[bool]
    unlabelled: NotRequired[int | None]
    nuisances: NotRequired[list[str] | None]
    answers: NotRequired[int | None]
    seeds: list[int]
    score: FiniteFloat | None
    splits: dict[str, dict[str, _Values]]


class _Select(TypedDict):
    rule: str
    split: NotRequired[Literal["val", "val_ood"]]  # val in older records
    metric: Annotated[str, AfterValidator(lambda name: metrics()[name].name)]
    reads_groups: bool


class _Failure(TypedDict):
    name: str
    seed: int
    error: str
    log: str


class _Record(TypedDict):
    """This is sweep.json, as far as it is shown."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[reportGeneralTypeIssues]

    preset: str
    over: dict[str, Any]
    select: _Select
    chosen: str | None
    points: list[_PointRecord]
    unfinished: int
    failed: list[_Failure]
    mixed_data: bool


_RECORD = TypeAdapter(_Record)


@dataclass(frozen=True)
class SweepFolder:
    """A sweep folder holds the runs of a sweep, and what is known of all of them together."""

    path: Path

    @property
    def record_file(self) -> Path:
        return self.path / "sweep.json"

    @property
    def trials_file(self) -> Path:
        return self.path / "optuna.db"

    def figure(self, ending: str) -> Path:
        return self.path / f"sweep.{ending}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from working here. A killed process leaves no lock behind."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = locked(self.path / ".lock", wait=False)
            lock.__enter__()
        except LockedError as error:
            raise RunError(
                f"{error.owner} works on the sweep in {str(self.path)!r}. Wait for it, or choose another folder with "
                "--out."
            ) from error
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def write_record(self, record: Mapping[str, Any]) -> None:
        try:
            write_atomic(self.record_file, to_json(sealed(record)))
        except OSError as error:
            raise self._cannot_write(error) from error

    def record(self) -> dict[str, Any]:
        """Return sweep.json."""
        try:
            record = json.loads(read_regular(self.record_file, MOST))
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{str(self.record_file)!r} cannot be read: {error}.") from error
        if not isinstance(record, dict) or record.get("version") != SWEEP_VERSION:
            raise RunError(
                f"{str(self.record_file)!r} is not of version {SWEEP_VERSION}, the only one this release reads."
            )
        try:
            record = unsealed(record)
            _RECORD.validate_python(record, strict=True)
            if lacking := [key for point in record["points"] for key in record["over"] if key not in point["values"]]:
                raise ValueError(f"a point has no {lacking[0]}")
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise RunError(f"{str(self.record_file)!r} is damaged: {where} is not as it should be.") from error
        except (ValueError, KeyError, RecursionError) as error:
            raise RunError(f"{str(self.record_file)!r} is damaged: {error}.") from error
        return record

    def _cannot_write(self, error: OSError) -> RunError:
        return RunError(
            f"Cannot write the sweep folder {str(self.path)!r}: {error.strerror or error}. Choose another with --out."
        )
