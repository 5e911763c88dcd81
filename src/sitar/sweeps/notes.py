"""Note the trials of a search beside Optuna's storage, with a checksum, so that a damaged storage is not continued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sitar.errors import RunError
from sitar.files import read_regular, to_json, write_atomic
from sitar.integrity import sealed, unsealed

MOST = 2**26  # bytes of the file
OPEN = "RUNNING"  # the state of a trial without a result


class Notes:
    """These are the trials of a study by their number: what each tries, and what came out.

    They are written after each change of the storage. A kill in between leaves the storage one change ahead.
    """

    def __init__(self, file: Path, study: str) -> None:
        self.file, self.study = file, study

    def write(self, trials: Sequence[dict[str, Any]]) -> None:
        studies = {**self._studies(), self.study: list(trials)}
        write_atomic(self.file, to_json(sealed({"studies": studies})))

    def compare(self, trials: Sequence[dict[str, Any]]) -> None:
        """Refuse trials that are not those that were noted, but for one change since."""
        noted = self._studies().get(self.study)
        if noted is None:  # an earlier release made them
            return
        new = len(trials) - len(noted)
        other = [i for i, (trial, before) in enumerate(zip(trials, noted, strict=False)) if trial != before]
        told = [i for i in other if noted[i]["state"] == OPEN and noted[i]["params"] == trials[i]["params"]]
        if new not in (0, 1) or len(other) > len(told) or new + len(told) > 1:
            what = f"trial {other[0]} is not what was written" if other else f"it has {len(trials)} trials"
            raise ValueError(f"it is damaged: {what}, by the notes in {str(self.file)!r}")

    def _studies(self) -> dict[str, list[dict[str, Any]]]:
        try:
            return dict(unsealed(json.loads(read_regular(self.file, MOST)))["studies"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"{str(self.file)!r} is damaged ({error}). Bring it from a copy. If you trust optuna.db beside it, "
                "remove it: it is then made anew."
            ) from error
