"""Compare the settings of runs: those that only say where files lie do not decide which run a run is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLACES = (  # settings that only say where files lie: checksums tell whether they are the same
    "data.root", "data.table", "data.file", "data.unlabelled", "model.encoder_weights",
)  # fmt: skip
INERT = ("train.log",)  # settings that change nothing of a run


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings by their full name, such as method.alpha."""
    settings: dict[str, Any] = {}
    for key, value in config.items():
        settings |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return settings


def preset_name(preset: str) -> str:
    """Return the name of a preset. A file of a user's own is named without its folder."""
    return Path(preset).name if preset.endswith((".yaml", ".yml")) else preset


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by their full name, without those that only say where files lie, or change no result.

    Data that has moved is the same data: its checksum tells. For a file of weights, the name counts and the folder does
    not.
    """
    settings = flat(config)
    kept = {key: value for key, value in settings.items() if key not in (*PLACES, *INERT)}
    if weights := settings.get("model.encoder_weights"):
        kept["model.encoder_weights"] = Path(str(weights)).name
    return kept


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return `key: mine here, theirs there` for every setting in which two runs differ, except for where files lie.

    Settings that change no result do not count either.
    """
    a, b = without_places(mine), without_places(theirs)
    return [
        f"{key}: {a.get(key)!r} asked for, {b.get(key)!r} in the folder"
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    ]
