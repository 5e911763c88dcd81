"""A run folder is where a run writes its files, and where everybody reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sitar.run_folder.artifacts import Artifacts
from sitar.run_folder.portable import Portable

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RunFolder(Portable, Artifacts):
    """A run folder says where the files of a run lie, writes them, and reads each of them back."""


class UnwrittenFolder(RunFolder):
    """This is a run folder that another process of the same run writes. What is written into it here is dropped."""

    @contextmanager
    def lock(self, *, wait: bool = False) -> Iterator[None]:
        yield

    def create(self, config: Mapping[str, Any]) -> None:
        pass

    def write_config(self, config: Mapping[str, Any]) -> None:
        pass

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        pass

    def write_tracker_ids(self, ids: Mapping[str, str]) -> None:
        pass

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        pass

    def sync_metrics(self) -> str:
        return ""

    def kept_metrics(self, count: int, expected: str | None = None) -> bytes:
        return b""

    def keep_metrics(self, count: int) -> None:
        pass

    def write_encoder(self, weights: bytes) -> None:
        pass

    def _write_checkpoint(self, file: Path, content: bytes) -> None:
        pass

    def finish(self, result: Mapping[str, Any], predictions: Mapping[str, NDArray[Any]] | None = None) -> None:
        pass
