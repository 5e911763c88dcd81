"""Note what a method keeps beside weights and buffers, so that a step that is tried out can be undone.

A method should keep nothing there that training changes. One that does is trained all the same.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

COMMON = frozenset(vars(nn.Module()))  # what every module has: its mode, and where its weights and buffers are
CONTAINERS = (list, dict, set, deque)


class _Noted(NamedTuple):
    value: Any
    content: Any  # a copy of what can change within it; None: nothing can
    version: int  # of a tensor: how often it was written


class Attributes:
    """Holds the plain attributes of a module and of its parts, as they were when this was made."""

    def __init__(self, module: nn.Module) -> None:
        self.noted = [(part, {key: _note(value) for key, value in _plain(part).items()}) for part in module.modules()]

    def changed(self) -> list[str]:
        """Name the attributes that have changed since."""
        found: dict[str, None] = {}
        for part, noted in self.noted:
            now = _plain(part)
            found |= dict.fromkeys(now.keys() ^ noted.keys())
            found |= {key: None for key, before in noted.items() if key in now and not _is_same(now[key], before)}
        return sorted(found)

    @torch.no_grad()
    def restore(self) -> None:
        """Put all of them back, in place."""
        for part, noted in self.noted:
            for key in _plain(part).keys() - noted.keys():
                del vars(part)[key]
            for key, before in noted.items():
                vars(part)[key] = before.value
                _refill(before)


def _plain(part: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(part).items() if key not in COMMON}


def _note(value: Any) -> _Noted:
    if isinstance(value, Tensor):
        return _Noted(value, value.detach().clone(), _version(value))
    return _Noted(value, copy.copy(value) if isinstance(value, CONTAINERS) else None, 0)


def _is_same(now: Any, before: _Noted) -> bool:
    if isinstance(now, bool | int | float | str):
        return type(now) is type(before.value) and now == before.value
    if now is not before.value:
        return False
    if isinstance(now, Tensor):
        return _version(now) == before.version
    return not isinstance(now, CONTAINERS) or _parts(now) == _parts(before.content)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _parts(container: Any) -> list[Any]:
    """Return what tells the content of a container: which objects it holds, and in a dict under which keys."""
    if isinstance(container, dict):
        return [(key, id(value)) for key, value in container.items()]
    return [id(value) for value in container]


def _refill(before: _Noted) -> None:
    value, content = before.value, before.content
    if isinstance(value, Tensor):
        if _version(value) != before.version:
            value.copy_(content)
    elif isinstance(value, CONTAINERS) and _parts(value) != _parts(content):
        value.clear()
        (value.extend if isinstance(value, list | deque) else value.update)(content)
