"""Names to classes, with a hint for names that do not exist."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sitar.errors import ConfigError

T = TypeVar("T", bound=type)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for a misspelt name, with a leading space, or an empty string when nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown(kind: str, name: str, known: Iterable[str], do: str = "") -> ConfigError:
    """The error for a name that is not one of `known`; `do` says what to do about it."""
    names = sorted(known)
    message = f"Unknown {kind} {name!r}.{did_you_mean(name, names)} Known: {', '.join(names)}."
    return ConfigError(f"{message} {do}".rstrip())


class Registry:
    """Classes by name. `home` is the package whose import fills it, so that a look-up never finds it empty."""

    def __init__(self, kind: str, home: str) -> None:
        self.kind = kind
        self.home = home
        self._classes: dict[str, type] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that enters a class under `name`."""

        def enter(cls: T) -> T:
            if name in self._classes:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._classes[name] = cls
            return cls

        return enter

    def names(self) -> list[str]:
        importlib.import_module(self.home)
        return sorted(self._classes)

    def get(self, name: str) -> Any:
        names = self.names()
        if name not in self._classes:
            raise unknown(self.kind, name, names)
        return self._classes[name]


METHODS = Registry("method", home="sitar.methods")
DATASETS = Registry("dataset", home="sitar.data")
