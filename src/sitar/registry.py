"""A registry finds classes by name, ours and those that others add. For a name that does not exist it gives a hint."""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from sitar.errors import ConfigError
from sitar.plugins import Plugin, find_plugins, imported_file

logger = logging.getLogger(__name__)

FROM_OUTSIDE = "If it comes from a file of yours, name the file with --import. If from a package, install the package."
T = TypeVar("T", bound=type)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Ask whether a similar name is meant, with a leading space. The string is empty if no name is similar."""
    small = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), list(small), n=1, cutoff=0.6)
    return f" Did you mean {small[close[0]]!r}?" if close else ""


def unknown(kind: str, name: str, known: Iterable[str], do: str = "") -> ConfigError:
    """Return the error for a name that is not one of `known`. `do` says what to do about it."""
    names = sorted(known)
    message = f"Unknown {kind} {name!r}.{did_you_mean(name, names)} Known: {', '.join(names)}."
    return ConfigError(f"{message} {do}".rstrip())


class Registry:
    """A registry holds classes by name.

    `home` is the package of this library whose import registers our own classes. `group` is the group of entry points
    through which other packages add theirs. The name of an entry point is the name of its class. Its value
    `package.module:Class` is imported when this name is first looked up. A class from outside must derive from `base`,
    which is written in the same way.
    """

    def __init__(self, kind: str, home: str, group: str | None = None, base: str | None = None) -> None:
        self.kind = kind
        self.home = home
        self.group = group
        self.base = base
        self._classes: dict[str, type] = {}
        self._plugins: dict[str, Plugin] | None = None  # None: the entry points are not read yet

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enters a class under `name`. A name that is taken is refused."""

        def enter(cls: T) -> T:
            plugins = {} if self._is_ours(cls) else self._find()  # plug-ins of this name must be known first
            if name in plugins and not _same_package(plugins[name], cls):
                raise ValueError(self._twice(name, str(plugins[name]), cls))
            if self._classes.get(name, cls) is not cls:
                raise ValueError(self._twice(name, _owner(self._classes[name]), cls))
            self._classes[name] = cls
            return cls

        return enter

    def names(self) -> list[str]:
        """List all names. No plug-in is imported for this."""
        plugins = self._find()
        return sorted({*self._classes, *plugins})

    def get(self, name: str) -> Any:
        """Return the class of this name. A plug-in is imported now. If it fails, the error names it."""
        plugins = self._find()
        if name not in self._classes and name in plugins:
            self._classes[name] = self._load(plugins[name])
        if name not in self._classes:
            raise unknown(self.kind, name, self.names(), FROM_OUTSIDE if self.group else "")
        if not self._is_ours(self._classes[name]):
            self._check(name, self._classes[name])
        return self._classes[name]

    def available(self) -> dict[str, Any]:
        """Return every class by name. A plug-in that cannot be imported is left out, and a warning names it."""
        classes = {}
        for name in self.names():
            try:
                classes[name] = self.get(name)
            except ConfigError as error:
                logger.warning("The %s %r is left out. %s", self.kind, name, error)
        return classes

    def added_by(self, name: str) -> str | None:
        """Say which package or file brings a class, with its version or digest. Return None for our own classes."""
        cls = self.get(name)
        if self._is_ours(cls):
            return None
        plugin = self._find().get(name)
        return _owner(cls) if plugin is None else str(plugin)

    @contextmanager
    def holding(self, classes: dict[str, type]) -> Iterator[None]:
        """Register classes during a `with` block only, as tests do with toys."""
        self._find()
        hidden = {name: self._classes[name] for name in classes if name in self._classes}
        self._classes.update(classes)
        try:
            yield
        finally:
            for name in classes:
                del self._classes[name]
            self._classes.update(hidden)

    def _find(self) -> dict[str, Plugin]:
        """Register our own classes and read the entry points. A warning names those whose name is taken."""
        importlib.import_module(self.home)
        if self._plugins is None:
            self._plugins = {}
            for plugin in find_plugins(self.group) if self.group else ():
                owner = None
                if plugin.name in self._plugins:
                    owner = str(self._plugins[plugin.name])
                elif plugin.name in self._classes and not _same_package(plugin, self._classes[plugin.name]):
                    owner = _owner(self._classes[plugin.name])
                if owner is None:
                    self._plugins[plugin.name] = plugin
                else:
                    logger.warning("%s is refused: the %s %r is that of %s.", plugin, self.kind, plugin.name, owner)
        return self._plugins

    def _load(self, plugin: Plugin) -> type:
        cls = plugin.load()
        if not isinstance(cls, type) or not isinstance(getattr(cls, "Config", None), type):
            raise ConfigError(
                f"{plugin} is no {self.kind}: an entry point of {self.group} is written package.module:Class, and the "
                "class has its settings as `Config`."
            )
        return cls

    def _check(self, name: str, cls: type) -> None:
        """Refuse a class from outside that cannot be what it is registered as."""
        for given, base in ((cls, self.base), (getattr(cls, "Config", None), self.base and "sitar.config:NamedConfig")):
            module, _, attribute = (base or "").partition(":")
            if base and not (
                isinstance(given, type) and issubclass(given, getattr(importlib.import_module(module), attribute))
            ):
                what = "the class" if given is cls else "its `Config`"
                raise ConfigError(
                    f"The {self.kind} {name!r} ({_owner(cls)}) breaks the contract: {what} must derive from "
                    f"{module}.{attribute}. `sitar.testing.check_{self.kind}({name!r})` checks all that it promises."
                )

    def _is_ours(self, cls: type) -> bool:
        return f"{cls.__module__}.".startswith(f"{self.home}.")

    def _twice(self, name: str, owner: str, cls: type) -> str:
        return f"{self.kind} {name!r} is registered twice: by {owner}, and by {_owner(cls)}"


def _owner(cls: type) -> str:
    """Say where a class comes from."""
    file = imported_file(cls.__module__)
    return f"{cls.__module__}.{cls.__qualname__}" if file is None else f"{cls.__qualname__} in {file}"


def _same_package(plugin: Plugin, cls: type) -> bool:
    """Say whether a class belongs to the package of an entry point. It may register itself as well."""
    return plugin.entry.module.partition(".")[0] == cls.__module__.partition(".")[0]


METHODS = Registry("method", home="sitar.methods", group="sitar.methods", base="sitar.methods.base:Method")
DATASETS = Registry("dataset", home="sitar.data", group="sitar.datasets", base="sitar.data.base:Dataset")


def metrics() -> Mapping[str, Any]:
    """Return the metrics by name, in the order of result.json.

    They are defined in a package that imports this one. They are therefore imported by name, when they are first
    needed.
    """
    return importlib.import_module("sitar.evaluation.metrics").METRICS
