"""Read settings of earlier releases: list those that are gone or have another name, and say what they are today.

Run folders, and files of users, hold settings that an earlier release wrote. Reports compare such runs with new ones.
They need no torch, so this stands apart from the classes of the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REMOVED: Mapping[str, Mapping[str, Any]] = {
    "data.color_mnist": {"variant": "paper"},
    "model": {"recon_target": "detached"},
    "method.sitar": {
        "beta_start": None,
        "beta_anneal_epochs": 20,
        "discriminator_hidden": 256,
        "discriminator_layers": 3,
        "discriminator_rate": 1e-4,
    },
}
"""Settings that are gone, by section and name, each with the one value that still holds."""

RENAMED: Mapping[str, Mapping[str, str]] = {"method.afr": {"pull": "l2"}, "method.vae": {"pull": "l2"}}
"""Settings that have another name, by section and name, each with its name today."""


def todays_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run in today's words, section by section."""
    return {
        section: todays_settings(section, settings) if isinstance(settings, Mapping) else settings
        for section, settings in config.items()
    }


def todays_settings(section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a section by their names today, without those that are gone.

    What cannot be read stays as it is, so that it is refused where settings are checked: a setting that is gone, with
    another value than the one that still holds, and an old name beside the new one.
    """
    kind = _kind(section, settings.get("name"))
    removed = REMOVED.get(kind, {})
    names = {old: new for old, new in RENAMED.get(kind, {}).items() if new not in settings}
    kept = {key: value for key, value in settings.items() if key not in removed or value != removed[key]}
    return {names.get(key, key): value for key, value in kept.items()}


def why_refused(section: str, name: str | None, key: str, value: Any) -> str | None:
    """Say why a setting of an earlier release cannot be read; None: no earlier release had it."""
    removed, renamed = REMOVED.get(_kind(section, name), {}), RENAMED.get(_kind(section, name), {})
    if key in removed:
        return f"{key} = {value!r} was removed, only {removed[key]!r} is left: leave {key} out"
    if key in renamed:
        return f"{key} is called {renamed[key]} now: give one of the two"
    return None


def _kind(section: str, name: Any) -> str:
    return section if name is None else f"{section}.{name}"
