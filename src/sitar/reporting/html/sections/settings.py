"""Show the settings in which the rows differ, and the environment, the commands and all settings of each run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from sitar.errors import SitarError
from sitar.presets import load_config, preset_names
from sitar.reporting.comparison import ComparedRun, Comparison, unlike_presets
from sitar.reporting.html.axes import reference_folder
from sitar.run_folder import INERT, RunFolder, explain_command, flat

FACTS = ("commit", "python", "platform", "device", "threads", "data_checksum")  # of the environment


def make(comparison: Comparison, sharing: int) -> dict[str, Any]:
    reference = reference_folder(comparison)
    return {
        "rows": [row.label for row in comparison.rows],
        "different": different_settings(comparison),
        "unlike_presets": unlike_presets(comparison.rows),
        "runs": [_details(run, reference, comparison) for run in comparison.runs],
    }


def different_settings(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Return the settings in which the rows differ, with the value of each row."""
    configs = [flat(row.runs[0].config) for row in comparison.rows]
    keys = dict.fromkeys(key for config in configs for key in config if key not in ("seed", "preset"))
    values = {key: [_value(config, key) for config in configs] for key in keys}
    return [(key, side_by_side) for key, side_by_side in values.items() if len({*side_by_side}) > 1]


def _value(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return "–"
    return yaml.safe_dump(config[key], default_flow_style=True).removesuffix("...\n").strip()


def _details(run: ComparedRun, reference: RunFolder | None, comparison: Comparison) -> dict[str, Any]:
    """Return where a run was made and how it is made again."""
    environment, folder = run.environment, comparison.shown_folder(run.folder)
    facts = {key: environment.get(key) for key in FACTS}
    versions = environment.get("versions")
    if isinstance(versions, dict):
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    facts["seconds"] = run.result["seconds"]
    facts["epoch"] = f"{run.result.get('selected_epoch')} ({run.result['selection']})"
    axes = None if reference is None else comparison.shown_folder(reference)
    evaluate = shlex.join(["sitar", "evaluate", str(folder.path)])
    return {
        "label": run.label,
        "folder": str(folder.path),
        "facts": {key: comparison.shown(value) for key, value in facts.items() if value is not None},
        "commands": [_train(replace(run, folder=folder)), evaluate, explain_command(folder, axes=axes)],
        "config": yaml.safe_dump(run.config, sort_keys=False),
    }


def _active(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flat(config).items() if key not in INERT}


def _train(run: ComparedRun) -> str:
    """Return the command that makes a run again. It is made from the settings: a folder may come from a stranger.

    Where the preset is not known here, the settings of the run are the preset. Where files lay is part of it: a report
    without paths shows the last names of these places.
    """
    if run.config.get("refit") is not None:
        return "sitar refit RUN --answers ANSWERS --images IMAGES"
    words = ["sitar", "train", str(run.folder.config_file)]
    preset, settings = run.config.get("preset"), _active(run.config)
    if preset in preset_names():
        try:
            known = _active(load_config(preset, (), run.seed).to_dict())
        except SitarError:
            return shlex.join(words)
        changed = [key for key in settings if key not in ("preset", "seed") and settings[key] != known.get(key)]
        words = ["sitar", "train", preset, "--seed", str(run.seed)]
        for key in changed:
            value = yaml.safe_dump(settings[key], default_flow_style=True, width=10**6).removesuffix("...\n").strip()
            words += ["--set", f"{key}={value}"]
    return shlex.join(words)
