"""A parser under test: valid inputs, a reader of one input, and a maker of inputs that are well formed and wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random


@dataclass(frozen=True)
class Parser:
    """An input is bytes: the content of a file, or a text. `read` raises a SitarError for what cannot be used."""

    name: str
    seeds: list[bytes]
    read: Callable[[bytes], object]
    wrong: Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Entry:
    """How a parser is made in an empty folder, and its share of the inputs."""

    make: Callable[[Path], Parser]
    weight: float = 1.0
