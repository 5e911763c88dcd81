"""A bundle is what is published of a run: an explicit list of files, with which others can predict.

It has the card, settings, result and weights, and the files that `sitar export` has written. It has no predictions, no
log and no pictures, and no path of this machine: settings of where files lie are empty, and the environment is short.
SHA256SUMS has the checksums of all but the card. `sha256sum -c SHA256SUMS` compares them after a download.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open

from sitar.errors import ExportError
from sitar.files import to_json
from sitar.integrity import checksum, checksum_of, sums_line
from sitar.privacy import shareable
from sitar.run_folder import PLACES, RunFolder, preset_name

ENVIRONMENT = ("commit", "python", "versions", "seed", "data_checksum")  # what is published of environment.json


@dataclass(frozen=True)
class Published:
    """A published file has a name in the repository, and a content: bytes, or the file that holds it."""

    name: str
    content: bytes | Path

    @property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    @property
    def checksum(self) -> str:
        return checksum(self.content) if isinstance(self.content, bytes) else checksum_of(self.content)


def bundle(folder: RunFolder, card: str, *, only_exported: bool = False) -> list[Published]:
    """List what is published of a finished run. With `only_exported` it is the card and the exported files."""
    folder.result()  # refuses a run that is not finished
    exported = [Published(f"export/{file.name}", _exported(folder, file)) for file in folder.exports()]
    if only_exported and not exported:
        raise ExportError(f"Nothing is exported yet: `sitar export {folder.path}` writes a file.")
    parts = [Published("README.md", card.encode(errors="replace"))]
    if not only_exported:
        parts += _run(folder, exported)
    else:
        parts += exported
    sums = b"".join(sums_line(part.name, part.checksum) for part in parts[1:])  # a card may be edited later
    return [*parts, Published("SHA256SUMS", sums)]


def _run(folder: RunFolder, exported: Sequence[Published]) -> list[Published]:
    """List what `sitar predict` needs of a run folder, and the exported files."""
    environment = folder.environment()
    parts = [
        Published("config.yaml", yaml.safe_dump(shareable_config(folder.read_config()), sort_keys=False).encode()),
        Published("result.json", to_json(shareable_result(folder.result()))),
    ]
    if environment is not None:
        parts.append(Published("environment.json", to_json({key: environment.get(key) for key in ENVIRONMENT})))
    parts += [Published(f"checkpoint/{file.name}", _sound(folder, file)) for file in folder.weights()]
    parts += exported
    return [*parts, Published("done", to_json({"sha256": {part.name: part.checksum for part in parts}}))]


def _own(folder: RunFolder, file: Path) -> Path:
    """Return a file of the run; refuse a pipe, and a link to a file that is not of the run."""
    if file.exists() and not (file.is_file() and folder.holds(file)):
        raise ExportError(f"{str(file)!r} leads out of the run folder, or is no file. It is not published.")
    return file


def _exported(folder: RunFolder, file: Path) -> Path:
    """Return an exported file; refuse one that is not what was written."""
    folder.compare(_own(folder, file))
    return file


def _sound(folder: RunFolder, weights: Path) -> Path:
    """Return a file of weights; refuse one that is cut off or damaged, before others download it."""
    try:
        with safe_open(_own(folder, weights), "np"):
            folder.compare(weights)
    except (OSError, SafetensorError) as error:
        raise ExportError(f"The weights {str(weights)!r} cannot be read: {error}. Train the run again.") from error
    return weights


def shareable_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the places of this machine. A file of weights or of settings keeps its name."""
    shared = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for place in PLACES:
        section, _, key = place.partition(".")
        if isinstance(shared.get(section), dict) and shared[section].get(key) is not None:
            value = shared[section][key]
            shared[section][key] = None if section == "data" else _last_name(value)
    shared["preset"] = preset_name(str(shared.get("preset") or "custom"))
    return shareable(shared)


def shareable_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result in which runs and settings are named without their folders.

    It does not tell which images were answered: whoever has such an image could find it by its checksum.
    """
    shared = dict(result)
    if "preset" in shared:
        shared["preset"] = preset_name(str(shared["preset"]))
    if isinstance(refit := shared.get("refit"), Mapping):
        before: Sequence[Mapping[str, Any]] = refit.get("before") or []
        named = [{**one, "run": _last_name(one.get("run"))} for one in before]
        told = {key: value for key, value in refit.items() if key != "answered"}
        shared["refit"] = {**told, "run": _last_name(refit.get("run")), "before": named}
    return shareable(shared)


def _last_name(path: object) -> str:
    """Return the last part of a path of any system."""
    return PureWindowsPath(str(path)).name
