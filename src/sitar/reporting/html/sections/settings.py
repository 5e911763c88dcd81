"""Show the settings in which the rows differ, and the environment, the commands and all settings of each run."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.axes import reference_folder
from sitar.run_folder import RunFolder, explain_command, flat

FACTS = ("commit", "python", "platform", "device", "threads", "data_checksum")  # of the environment


def make(comparison: Comparison, sharing: int) -> dict[str, Any]:
    reference = reference_folder(comparison)
    return {
        "rows": [row.label for row in comparison.rows],
        "different": different_settings(comparison),
        "runs": [_details(run, reference) for run in comparison.runs],
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


def _details(run: ComparedRun, reference: RunFolder | None) -> dict[str, Any]:
    """Return where a run was made and how it is made again."""
    environment, path = run.environment, str(run.folder.path)
    facts = {key: environment.get(key) for key in FACTS}
    versions = environment.get("versions")
    if isinstance(versions, dict):
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    facts["seconds"] = run.result["seconds"]
    facts["epoch"] = f"{run.result.get('selected_epoch')} ({run.result['selection']})"
    made_by = environment.get("command")
    train = made_by if isinstance(made_by, str) else shlex.join(["sitar", "train", str(run.folder.config_file)])
    evaluate = shlex.join(["sitar", "evaluate", path])
    return {
        "label": run.label,
        "folder": path,
        "facts": {key: value for key, value in facts.items() if value is not None},
        "commands": [train, evaluate, explain_command(run.folder, axes=reference)],
        "config": yaml.safe_dump(run.config, sort_keys=False),
    }
