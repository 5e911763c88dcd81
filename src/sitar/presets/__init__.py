"""Presets are named settings in YAML files. Here one of them becomes a configuration.

A preset is called DATASET/METHOD. It holds what differs from the base of its folder and from the defaults of the code,
each value with its source (docs/protocol.md). Other packages add presets through the entry point group `sitar.presets`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sitar.config import RunConfig, apply_overrides, run_config
from sitar.presets.files import preset_names, preset_text, read_preset
from sitar.registry import METHODS
from sitar.yaml_text import read_yaml

__all__ = ["load_config", "preset_about", "preset_names", "preset_text", "read_preset"]

logger = logging.getLogger(__name__)


def preset_about(name: str) -> str:
    """Say in one line what a preset is: the comment that opens its file."""
    first = next(iter(preset_text(name).splitlines()), "")
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def load_config(preset: str, overrides: Iterable[str] = (), seed: int | None = None) -> RunConfig:
    """Return the complete configuration of a preset (or of a .yaml file) with overrides applied."""
    asked = let_asked_epochs_run(overrides)
    raw, left_out = leave_out_foreign_settings(read_preset(preset).merged(), asked)
    config = run_config(apply_overrides(raw, asked), preset=preset, seed=seed)
    if left_out:
        logger.warning("%s has no setting %s: left out.", _asked(asked)["method.name"], ", ".join(left_out))
    return config


def let_asked_epochs_run(overrides: Iterable[str]) -> list[str]:
    """Return the overrides such that the epochs that a user asks for are those that run.

    With `train.least_steps` a preset trains for more epochs than it says when the data is small. Whoever sets
    `train.epochs` means that number, so the preset's `least_steps` becomes 0. A user may still set both.
    """
    overrides = list(overrides)
    return ["train.least_steps=0", *overrides] if "train.epochs" in _asked(overrides) else overrides


def leave_out_foreign_settings(raw: Mapping[str, Any], overrides: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return a preset's settings without those that another method does not know, and the names of these.

    A user who asks for another method (`method.name=...`) did not write the settings of the preset's own method. What
    the user does write is not touched here: a setting that the method lacks is then an error.
    """
    name, settings = _asked(overrides).get("method.name", ""), raw.get("method")
    if not isinstance(settings, Mapping) or not isinstance(name, str) or name not in METHODS.names():
        return dict(raw), []
    known = {field.alias or key for key, field in METHODS.get(name).Config.model_fields.items()}
    left_out = [str(key) for key in settings if key not in known]
    return {**raw, "method": {key: value for key, value in settings.items() if key in known}}, left_out


def _asked(overrides: Iterable[str]) -> dict[str, Any]:
    """Return what overrides set, by key. What is no YAML is refused where it is applied."""
    asked = {}
    for override in overrides:
        key, _, value = override.partition("=")
        with suppress(ValueError):
            asked[key.strip()] = read_yaml(value)
    return asked
