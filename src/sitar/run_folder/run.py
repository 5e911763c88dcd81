"""A finished run is read from its folder once. Tables, figures and reports are made from it."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sitar.errors import RunError
from sitar.findings import PARTS, arrays_fit, sound_parts
from sitar.run_folder.checksums import Arrays
from sitar.run_folder.folder import RunFolder
from sitar.run_folder.schema import SETTINGS, Result, check

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)
FILE_DIGEST = re.compile(r"\(sha256 ([0-9a-f]+)\)$")  # at the end of what environment.json says of a user's own file
UNLABELLED_CHECKSUM = "unlabelled_checksum"  # in environment.json, where a method was given unlabelled inputs
KINDS = {"logits": "f", "y": "iu", "group": "iu", "group_share": "f", "majority": "iu"}  # of the stored predictions


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
        config, result = folder.read_config(), folder.result()
        check(SETTINGS, config, folder.config_file)
        return cls(folder, config, result)

    @property
    def seed(self) -> int:
        return self.result["seed"]

    @property
    def is_imported(self) -> bool:
        """Return whether other code has made the predictions. What a seed is there is not known."""
        return False

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return self.folder.metrics()

    @cached_property
    def chosen(self) -> str | None:
        """Return which of its candidates answers, where the method has trained several in phases of their names."""
        chosen = self.result.get("auto", {}).get("chosen")
        return chosen if any(line.get("phase") == chosen for line in self.metrics) else None

    @cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """Return the metrics of the model that answers: those of the candidate that was chosen, or else all."""
        return [line for line in self.metrics if self.chosen is None or line.get("phase") == self.chosen]

    @cached_property
    def environment(self) -> dict[str, Any]:
        try:
            return self.folder.environment() or {}
        except RunError as error:
            logger.warning("%s", error)
            return {}

    @cached_property
    def explanation(self) -> dict[str, Any] | None:
        try:
            return sound_parts(self.folder.explanation())
        except RunError as error:
            if self.folder.is_explained:
                logger.warning("%s", error)
            return None

    @cached_property
    def audit(self) -> dict[str, Any] | None:
        try:
            return self.folder.audit()
        except RunError as error:
            if self.folder.is_audited:
                logger.warning("%s", error)
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
            arrays = self.folder.predictions()
        except RunError as error:
            if self.folder.predictions_file.exists():
                logger.warning("%s", error)
            return {}
        if not _fit_each_other(arrays):
            logger.warning("%r is not used: its arrays do not fit each other.", str(self.folder.predictions_file))
            return {}
        return arrays

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

    @property
    def unlabelled_checksum(self) -> str | None:
        """Return the checksum of the unlabelled inputs that the method was given. Most methods are given none."""
        return self.environment.get(UNLABELLED_CHECKSUM)

    @property
    def code(self) -> tuple[str, ...] | None:
        """Return the digests of the user's own files that define method and data set, or None if they are not known."""
        sources = self.environment.get("plugins")
        if not isinstance(sources, dict):
            return None
        found = [FILE_DIGEST.search(str(source)) for source in sources.values()]
        return tuple(sorted({digest[1] for digest in found if digest}))


def _fit_each_other(arrays: Arrays) -> bool:
    """Return whether predictions have the types and shapes that readers rely on."""
    for name, array in arrays.items():
        split, _, what = name.rpartition("/")
        logits = arrays.get(f"{split}/logits")
        if (
            logits is None
            or f"{split}/y" not in arrays
            or logits.ndim != 2
            or not logits.shape[1]
            or array.dtype.kind not in KINDS.get(what, "fiubU")
        ):
            return False
        if what in ("y", "group") and array.shape != logits.shape[:1]:
            return False
        if what == "y" and array.size and not 0 <= array.min() <= array.max() < logits.shape[1]:
            return False
        if what == "majority" and (array.ndim != 2 or array.shape[1] != 2):
            return False
    return True
