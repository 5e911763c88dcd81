"""Show a preset to a user: every setting, where it comes from, and its source."""

from __future__ import annotations

from typing import Any

import yaml

from sitar.presets import load_config
from sitar.presets.files import Preset, read_preset


def show_preset(name: str) -> str:
    """Return the complete settings of a preset as YAML that can be trained, with a comment behind each setting."""
    preset, config = read_preset(name), load_config(name)
    places = {"preset": preset.own.name, "base": preset.base.name, "default": "the code"}
    legend = ", ".join(f"[{origin}] {place}" for origin, place in places.items() if place)
    lines = [*preset.own.comments, *preset.base.comments, f"# Who sets a value: {legend}."]
    lines.append(_line("seed", config.seed, "[preset]" if "seed" in preset.own.values else "[default]"))
    for section, values in config.to_dict().items():
        if isinstance(values, dict):
            fields = type(getattr(config, section)).model_fields
            names = {field.alias or name: {field.alias or name, name} for name, field in fields.items()}
            lines.append(f"{section}:")
            for key in sorted(values, key=lambda key: key != "name"):  # the name first
                lines.append("  " + _line(key, values[key], _origin(preset, section, names[key])))
    return "\n".join(lines)


def _origin(preset: Preset, section: str, keys: set[str]) -> str:
    """Say who sets a value, which may be written under several keys, and its source if there is one."""
    for origin, file in (("preset", preset.own), ("base", preset.base)):
        for key in keys & set(file.section(section)):
            source = file.sources.get((section, key))
            return f"source: {source} [{origin}]" if source else f"[{origin}]"
    return "[default]"


def _line(key: str, value: Any, comment: str) -> str:
    pair = yaml.safe_dump({key: value}, default_flow_style=True, width=10**6, allow_unicode=True).strip()[1:-1]
    return f"{pair:<28}  # {comment}"
