"""Leave out of a file that is sent on where things lie on this machine: folders tell names of users and projects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_START = r"(?:~[^/\\\s'\"]*[/\\]|/|[A-Za-z]:[/\\]|\\\\)"  # of an absolute path: /, ~/, ~user/, C:\, \\server
_QUOTED = re.compile(rf"(?P<quote>['\"`]){_START}(?P<rest>[^'\"`]*)(?P=quote)")
_PLAIN = re.compile(rf"(?<![\w./~\\:-]){_START}(?:[^\s'\"`,;()/\\]*[/\\])*(?P<name>[^\s'\"`,;()/\\]*)")


def without_folders(text: str) -> str:
    """Return a text in which an absolute path is only its last name: `runs/a` stays, `/home/me/runs/a` is `a`."""
    text = _QUOTED.sub(lambda found: f"{found['quote']}{_last_name(found['rest'])}{found['quote']}", text)
    return _PLAIN.sub(lambda found: found["name"], text)


def _last_name(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def shareable(value: Any) -> Any:
    """Return settings or findings in which every absolute path is only its last name. A path alone may hold spaces."""
    if isinstance(value, str):
        if re.match(_START, value):
            return _last_name(value)
        return without_folders(value)
    if isinstance(value, Mapping):
        return {key: shareable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shareable(item) for item in value]
    return value
