"""Names that users choose become plain text in Markdown: no link, no emphasis, no HTML, no second line."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"[\\`*\[\]|~$#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_OPENING = re.compile(r"^([-+=]|\d+(?=[.)](?:\s|$)))")
_LINK = re.compile(r"(?i)(?<=https)(?=:)|(?<=http)(?=:)|(?<=ftp)(?=:)|(?<=www)(?=\.)|(?<=\w)(?=@)")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


class Markdown(str):
    """This text is Markdown already, and is not escaped."""


def escaped(value: object) -> str:
    """Return a value as plain text for Markdown. Control characters and line breaks become spaces."""
    if isinstance(value, Markdown):
        return value
    text = " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())
    text = _SPECIAL.sub(lambda found: f"\\{found[0]}", text)
    text = _LINK.sub(r"\\", text)  # a renderer makes links of bare addresses
    text = "".join(_HTML.get(c, c) for c in text)
    return _OPENING.sub(lambda found: f"\\{found[0]}" if found[0] in "-+=" else f"{found[0]}\\", text)
