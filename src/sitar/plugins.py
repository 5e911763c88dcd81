"""Methods and datasets come from outside: from installed packages, or from a Python file of a user's own."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from sitar.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """A plug-in is an entry point of an installed package. Nothing of the package is imported before `load`."""

    entry: metadata.EntryPoint
    package: str
    version: str

    @property
    def name(self) -> str:
        return self.entry.name

    def __str__(self) -> str:
        return f"{self.entry.value} of the package {self.package!r} ({self.version})"

    def load(self) -> Any:
        """Import what the entry point names. If the package fails, the error names it in one line."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:  # whatever a package may raise when it is imported
            raise ConfigError(
                f"{self} cannot be imported. {one_line(error)}. Repair this package or uninstall it."
            ) from error


def find_plugins(group: str) -> list[Plugin]:
    """Find the entry points of a group, ordered by name and package."""
    try:
        entries = metadata.entry_points(group=group)
    except Exception:  # one package whose list is damaged must not end every command
        entries = list(_sound_entries(group))
    plugins = []
    for entry in entries:
        package = entry.dist
        plugins.append(Plugin(entry, "?", "?") if package is None else Plugin(entry, package.name, package.version))
    return sorted(plugins, key=lambda plugin: (plugin.name, plugin.package))


def _sound_entries(group: str) -> Iterator[metadata.EntryPoint]:
    """Yield the entry points of every package but those whose list cannot be read. A warning names these."""
    seen: set[str] = set()
    for package in metadata.distributions():
        try:
            name = package.name or "?"
            if name in seen:  # as importlib does: the first of a name on the path counts
                continue
            seen.add(name)
            yield from package.entry_points.select(group=group)
        except Exception as error:  # it is not specified what a damaged list raises
            logger.warning("A package is left out, since its list of entry points is damaged: %s.", one_line(error))


@dataclass(frozen=True)
class ImportedFile:
    """An imported file has the name that the user gave, and a digest of its content when it was imported."""

    given: str
    digest: str

    def __str__(self) -> str:
        return f"the file {self.given} (sha256 {self.digest})"


_files: dict[str, ImportedFile] = {}  # by the name of their module


def import_file(file: str | Path) -> ModuleType:
    """Import a Python file of a user's own. A second import of the same file does nothing.

    The module has a name that no installed module has. No bytecode is written beside the file.
    """
    path = Path(file)
    if path.suffix != ".py":
        raise ConfigError(f"{str(file)!r} cannot be imported: it is not a Python file, whose name ends in .py.")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{str(file)!r} cannot be imported: {error.strerror or error}.") from error
    name = f"imported_{hashlib.sha256(str(path.resolve()).encode(errors='surrogateescape')).hexdigest()[:12]}"
    if name in _files:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic and torch look modules up by name
    _files[name] = ImportedFile(str(file), hashlib.sha256(source).hexdigest()[:12])
    try:
        exec(compile(source, str(path.absolute()), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name], _files[name]
        raise ConfigError(f"{str(file)!r} cannot be imported: {one_line(error, str(path.absolute()))}.") from error
    return module


def imported_files() -> list[str]:
    """List the files that were imported, as the user named them, in order."""
    return [file.given for file in _files.values()]


def import_options() -> list[str]:
    """Return the options of a command that import the same files again."""
    return [word for file in imported_files() for word in ("--import", file)]


def imported_file(module: str) -> ImportedFile | None:
    """Return the file that was imported as this module. Return None for any other module."""
    return _files.get(module)


def one_line(error: BaseException, file: str | None = None) -> str:
    """Say in one line what was raised, and in which line of `file`."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}" if error.filename == file else f"{type(error).__name__}: {error}"
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    message = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")
    return f"line {lines[-1]}: {message}" if lines else message
