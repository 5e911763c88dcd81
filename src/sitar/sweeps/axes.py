"""An axis is a setting that a sweep varies: by a list of values, or over a range that a search draws from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sitar.errors import ConfigError
from sitar.yaml_text import read_yaml

RANGE = re.compile(r"(?P<low>[^,\[\]]+?)\.\.(?P<high>[^,\[\]]+?)(?P<log>:log)?")
EXAMPLE = "such as --over method.alpha=0.1,0.5,1"


@dataclass(frozen=True)
class Values:
    """These are the values of a setting, in the order in which they were given."""

    key: str
    values: tuple[Any, ...]

    def describe(self) -> list[Any]:
        return list(self.values)


@dataclass(frozen=True)
class Range:
    """A search draws the values of a setting from this range. With `log` it draws their logarithms evenly."""

    key: str
    low: float
    high: float
    log: bool = False
    integer: bool = False

    def ends(self) -> tuple[float, float]:
        """Return both ends, as whole numbers where they are: a setting may allow nothing else."""
        low, high = (int(end) if float(end).is_integer() else end for end in (self.low, self.high))
        return low, high

    def describe(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log, "integer": self.integer}


Axis = Values | Range
Over = Mapping[str, "str | Sequence[Any]"] | Iterable[str]


def parse_over(over: Over) -> list[Axis]:
    """Read axes from "key=value,value" strings, or from a mapping of keys to lists or to such strings."""
    if isinstance(over, Mapping):
        axes = [
            _axis(str(key), given) if isinstance(given, str) else _values(str(key), list(given))
            for key, given in over.items()
        ]
    else:
        axes = []
        for text in over:
            key, equals, given = text.partition("=")
            if not equals or not key.strip() or not given.strip():
                raise ConfigError(f"--over {text!r} is not of the form key=value,value, {EXAMPLE}.")
            axes.append(_axis(key.strip(), given.strip()))
    for i, axis in enumerate(axes):
        if axis.key in {other.key for other in axes[:i]}:
            raise ConfigError(f"--over {axis.key} is given twice. Give all its values at once, {EXAMPLE}.")
    return axes


def _axis(key: str, given: str) -> Axis:
    if found := RANGE.fullmatch(given):
        return _range(key, given, found["low"], found["high"], found["log"] is not None)
    try:
        values = read_yaml(f"[{given}]")
    except ValueError as error:
        raise ConfigError(f"--over {key}={given}: the values are not valid YAML.") from error
    return _values(key, values)


def _values(key: str, values: list[Any]) -> Values:
    if key == "seed":
        raise ConfigError("--over seed: seeds have an option of their own, such as --seeds 0-4.")
    if not values:
        raise ConfigError(f"--over {key} has no value. List some, {EXAMPLE}.")
    return Values(key, tuple(values))


def _range(key: str, given: str, low: str, high: str, log: bool) -> Range:
    try:
        ends = float(low), float(high)
    except ValueError as error:
        raise ConfigError(f"--over {key}={given}: the ends of a range are numbers, such as 0.01..10:log.") from error
    if not -math.inf < ends[0] < ends[1] < math.inf:
        raise ConfigError(f"--over {key}={given}: a range goes from a number to a greater one, such as 0.01..10.")
    if log and ends[0] <= 0:
        raise ConfigError(f"--over {key}={given}: a range with :log begins above 0.")
    return Range(key, *ends, log)


def parse_seeds(given: str | int | Iterable[int]) -> tuple[int, ...]:
    """Read seeds such as "0-4" or "0,2,5", in order and each once."""
    if isinstance(given, str):
        seeds: set[int] = set()
        for part in given.split(","):
            found = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", part)
            first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
            if first > last or last - first > 10_000:
                raise ConfigError(f"--seeds {given!r} is neither a list of numbers, such as 0,1,2, nor a range, 0-4.")
            seeds |= set(range(first, last + 1))
        return tuple(sorted(seeds))
    seeds = {given} if isinstance(given, int) else set(given)
    if not seeds or not all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in seeds):
        raise ConfigError(f"seeds are numbers from 0, such as range(5); got {given!r}.")
    return tuple(sorted(seeds))
