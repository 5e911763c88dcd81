"""What `sitar explain` has left in a run folder, read back."""

from __future__ import annotations

import json
import shlex
import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from sitar.errors import RunError
from sitar.run_folder import EXPLAIN_VERSION, RunFolder


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Axes(_Part):
    axes: list[int]
    values: list[FiniteFloat]
    v: list[FiniteFloat]

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if not len(self.axes) == len(self.values) == len(self.v):
            raise ValueError("axes, values and v are of different lengths")
        return self


class _Through(_Axes):
    run: str
    n: int


class _Start(_Part):
    label: int


class _Traversals(_Part):
    axes: list[int]
    values: list[list[FiniteFloat]]
    starts: list[_Start]


class _GradCAM(_Part):
    split: str
    n: int
    mass_in_box: FiniteFloat | None
    box: Annotated[list[FiniteFloat], Field(min_length=4, max_length=4)] | None


class _Wrong(_Part):
    pass


SHAPES = {
    "sensitivity": _Axes, "through": _Through, "traversals": _Traversals, "gradcam": _GradCAM, "wrong": _Wrong,
}  # fmt: skip


def sound(explain: dict[str, Any]) -> dict[str, Any]:
    """explain.json without the parts that are not as `sitar explain` writes them."""
    reasons = explain.get("reasons")
    kept = {name: explain.get(name) if _is_sound(explain.get(name), shape) else None for name, shape in SHAPES.items()}
    return {**explain, **kept, "reasons": reasons if isinstance(reasons, dict) else {}}


def _is_sound(part: Any, shape: type[_Part]) -> bool:
    try:
        shape.model_validate(part)
    except ValidationError:
        return False
    return True


def read_explain(folder: RunFolder) -> dict[str, Any]:
    """explain.json of a run that was explained."""
    return read_findings(folder.explain_file, EXPLAIN_VERSION, command(folder))


def read_findings(file: Path, version: int, made_by: str) -> dict[str, Any]:
    """What a command has left in a JSON file of this version."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{str(file)!r} cannot be read. `{made_by}` makes it.") from error
    if not isinstance(found, dict) or found.get("version") != version:
        raise RunError(f"{str(file)!r} is not of version {version}, the only one this release reads.")
    return found


def read_part(folder: RunFolder, part: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """One part of explain.json with its arrays; a part that there is not is refused with the reason."""
    explain = read_explain(folder)
    if not explain.get(part):
        reason = explain.get("reasons", {}).get(part, "it was left out")
        raise RunError(f"{str(folder.path)!r} has no {part}: {reason}")
    try:
        return explain, read_arrays(folder.artifacts / f"{part}.npz")
    except RunError as error:
        raise RunError(f"{error} `{command(folder)}` makes it.") from error


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(f"{str(file)!r} cannot be read.") from error


def command(*folders: RunFolder, axes: RunFolder | None = None) -> str:
    """What explains runs, on the axes of one of them if it is named, for a shell."""
    ruler = [] if axes is None else ["--axes", str(axes.path)]
    return shlex.join(["sitar", "explain", *(str(folder.path) for folder in folders), *ruler])


def name_of(explain: dict[str, Any]) -> str:
    return f"{explain['preset']}, seed {explain['seed']}"
