"""Leave out of a file that is sent on where things lie on this machine: folders tell names of users and projects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ROOT = r"(?:~[^/\\\s'\"]*[/\\]|/|[A-Za-z]:[/\\]|\\\\)"  # of an absolute path: /, ~/, ~user/, C:\, \\server
_LOCAL = (  # what stands before it in an address of this machine, such as file:// or sqlite:///
    r"(?<![\w+.-])(?:(?i:file):(?://[^/\\\s'\"`]*)?|[A-Za-z][\w+.-]*://(?=/))"
)
_START = rf"(?:{_LOCAL})?{_ROOT}"
_QUOTED = re.compile(rf"(?P<quote>['\"`]){_START}(?P<rest>(?:(?!(?P=quote)).)*)(?P=quote)", re.DOTALL)
_PART = r"(?:[^\s'\"`,;()/\\]|(?<=\w)'(?=\w))*"  # of a path in a sentence
_BEFORE = r"(?<![\w./~\\])(?<![\w./~\\]-)(?!(?<=:)//|(?<=<)/\w+>)"  # no part of runs/a, a-/b, https:// or </b>
_PLAIN = re.compile(rf"(?:{_LOCAL}|{_BEFORE}){_ROOT}(?:{_PART}[/\\])*(?P<name>{_PART})")
_LONGEST = 2048  # characters of a password
_SECRET = re.compile(rf"(?<=://)(?:[^\s/:@]{{0,{_LONGEST}}}:\S{{0,{_LONGEST}}}|[^\s/]{{1,{_LONGEST}}})@")


def without_folders(text: str) -> str:
    """Return a text in which an absolute path is only its last name: `runs/a` stays, `/home/me/runs/a` is `a`.

    An address loses the user and the password that it names.
    """
    text = _SECRET.sub("", text)
    text = _QUOTED.sub(lambda found: f"{found['quote']}{last_name(found['rest'])}{found['quote']}", text)
    return _PLAIN.sub(lambda found: found["name"], text)


def last_name(path: str) -> str:
    """Return the last name of a path or address of any system."""
    return re.split(r"[/\\]", _SECRET.sub("", path).rstrip("/\\"))[-1]


def shareable(value: Any) -> Any:
    """Return settings or findings in which every absolute path is only its last name. A path alone may hold spaces."""
    if isinstance(value, str):
        return last_name(value) if re.match(_START, value) else without_folders(value)
    if isinstance(value, Mapping):
        shared: dict[Any, Any] = {}
        for key, item in value.items():
            name = shareable(key) if isinstance(key, str) else key
            while name in shared:  # two folders may have the same last name
                name = f"{name} {len(shared)}"
            shared[name] = shareable(item)
        return shared
    if isinstance(value, (list, tuple)):
        return [shareable(item) for item in value]
    return value
