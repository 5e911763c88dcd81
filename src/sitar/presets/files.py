"""Find and read the YAML files of presets, and merge a preset with its base.

The base of DATASET/METHOD is DATASET/_base. A file of a user's own has a base only if it names one: `base: DATASET`, or
the path of a YAML file, relative to its own folder. A base holds `data`, `model` and `train`, and has no base itself.
"""

from __future__ import annotations

import functools
import io
import itertools
import logging
import re
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from sitar.errors import ConfigError
from sitar.files import read_regular
from sitar.plugins import find_plugins, one_line
from sitar.registry import unknown
from sitar.yaml_text import MOST_CHARACTERS, read_yaml, yaml_nodes

logger = logging.getLogger(__name__)

ENTRY_POINTS = "sitar.presets"
BASE = "_base"
BASE_SECTIONS = ("data", "model", "train")
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class SettingsFile:
    """Holds what a YAML file says: its values, the source of each by (section, key), and the comments at its top."""

    name: str
    comments: list[str]
    values: dict[str, Any]
    sources: dict[tuple[str, str], str]

    def section(self, name: str) -> dict[str, Any]:
        """Return the settings of a section. There are none if it is absent or no mapping."""
        value = self.values.get(name)
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Preset:
    """Holds a preset's own file and its base."""

    own: SettingsFile
    base: SettingsFile

    def merged(self) -> dict[str, Any]:
        """Return the values of both, setting by setting. If both have one, the preset's own counts."""
        values = {key: value for key, value in self.own.values.items() if key != "base"}
        for section in self.base.values:
            if values.get(section) is None or isinstance(values[section], dict):
                values[section] = {**self.base.section(section), **self.own.section(section)}
        return values


NO_BASE = SettingsFile("", [], {}, {})


def preset_names() -> list[str]:
    """List the presets of this package and of the packages that add some, as DATASET/METHOD."""
    return sorted(name for name in _files() if not name.endswith(f"/{BASE}"))


def preset_text(name: str) -> str:
    """Return the YAML of a preset by name, or of a file of your own by path (ending in .yaml), without its base."""
    if name.endswith(SUFFIXES):
        return _text(Path(name), f"the settings file {name!r}")
    if name not in preset_names():
        raise unknown("preset", name, preset_names(), "A path to a .yaml file of your own works too.")
    return _text(_files()[name].file, f"the preset {name!r}")


def read_preset(name: str) -> Preset:
    """Read a preset, or a file of your own, and its base."""
    own = _parse(preset_text(name), name)
    if name not in preset_names():
        return Preset(own, _named_base(own))
    if "base" in own.values:
        raise ConfigError(f"The preset {name!r} names a base, but it has that of its folder: leave the line out.")
    base = f"{name.partition('/')[0]}/{BASE}"
    return Preset(own, _base(_files()[base].file, base, name) if base in _files() else NO_BASE)


def _named_base(own: SettingsFile) -> SettingsFile:
    """Read the base that a file of a user's own names, if it names one."""
    base = own.values.get("base")
    if base is None:
        return NO_BASE
    if str(base).endswith(SUFFIXES):
        return _base(Path(own.name).parent / str(base), str(base), own.name)
    known = [name.partition("/")[0] for name in _files() if name.endswith(f"/{BASE}")]
    if base not in known:
        raise unknown("base", str(base), known, f"A path to a .yaml file works too, relative to {own.name!r}.")
    return _base(_files()[f"{base}/{BASE}"].file, f"{base}/{BASE}", own.name)


def _base(file: Traversable, name: str, preset: str) -> SettingsFile:
    """Read a base. Sections that it may not hold are an error."""
    base = _parse(_text(file, f"the base {name!r} of {preset!r}"), name)
    if "base" in base.values:
        raise ConfigError(f"{preset!r}: its base {name!r} names a base of its own. Put the settings of both into one.")
    for section, value in base.values.items():
        if section not in BASE_SECTIONS:
            allowed = ", ".join(BASE_SECTIONS)
            raise ConfigError(f"{preset!r}: its base {name!r} has {section!r}. A base holds only {allowed}.")
        if value is not None and not isinstance(value, dict):
            raise ConfigError(f"{name!r}: {section}: expected settings (key: value), got {value!r}.")
    return base


@dataclass(frozen=True)
class _PresetFile:
    """Holds a file of a preset, and the name of the package that brings it."""

    file: Traversable
    package: str


@functools.cache
def _files() -> dict[str, _PresetFile]:
    """Find the file of every preset and base by name: ours, then those of packages that register presets.

    Presets of another package join the folder of the same name, so they have its base.
    """
    files = {name: _PresetFile(file, "sitar") for name, file in _yaml_files(resources.files("sitar.presets")).items()}
    for plugin in find_plugins(ENTRY_POINTS):
        package, module = plugin.package, plugin.entry.module
        try:
            added = _yaml_files(resources.files(module))
        except (Exception, SystemExit) as error:  # whatever a package may raise when it is imported
            logger.warning("The presets %s of the package %r are left out. %s.", module, package, one_line(error))
            continue
        for name, file in added.items():
            if name in files:
                owner = files[name].package
                logger.warning("%s.yaml of the package %r is refused: %r has one of that name.", name, package, owner)
            else:
                files[name] = _PresetFile(file, package)
    return files


def _yaml_files(root: Traversable) -> dict[str, Traversable]:
    """Find the files DATASET/METHOD.yaml below a folder, by name."""
    return {
        f"{folder.name}/{file.name.removesuffix('.yaml')}": file
        for folder in root.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    }


def _text(file: Traversable, what: str) -> str:
    try:
        if not isinstance(file, Path):  # in a package that is not unpacked
            return file.read_text(encoding="utf-8")
        content = read_regular(file, 4 * MOST_CHARACTERS)
        return io.StringIO(content.decode("utf-8"), newline=None).read()  # line ends of all systems are ours
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {what}: {error}.") from error


def _parse(text: str, name: str) -> SettingsFile:
    try:
        values, root = read_yaml(text), yaml_nodes(text)
    except ValueError as error:
        raise ConfigError(f"{name!r} is not valid YAML: {error}") from error
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigError(f"{name!r} holds {type(values).__name__}, not settings (key: value).")
    lines = text.splitlines()
    comments = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    return SettingsFile(name, comments, values, _sources(root, lines))


def _sources(root: yaml.Node | None, lines: list[str]) -> dict[tuple[str, str], str]:
    """Return what stands behind `# source:` on the line of each setting."""
    sources = {}
    for section, settings in root.value if isinstance(root, yaml.MappingNode) else ():
        for key, _ in settings.value if isinstance(settings, yaml.MappingNode) else ():
            if match := re.search(r"# source: (.+)", lines[key.start_mark.line]):
                sources[section.value, key.value] = match[1].strip()
    return sources
