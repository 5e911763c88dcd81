"""A page as a person and a browser see it, without one."""

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from PIL import Image


class Reader(HTMLParser):
    """Text that a person sees, ids, script contents, and addresses that a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.data: dict[str, str] = {}
        self.scripts = 0
        self._in: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {key: value or "" for key, value in attrs}
        self.ids |= {named["id"]} if "id" in named else set()
        self.addresses += [named[key] for key in ("src", "href", "action") if key in named]
        if tag in ("script", "style"):
            self.scripts += tag == "script"
            self._in = (tag, named.get("id", ""))

    def handle_endtag(self, tag: str) -> None:
        self._in = None if tag in ("script", "style") else self._in

    def handle_data(self, data: str) -> None:
        if self._in is None:
            self.words.append(data)
        elif self._in[1]:
            self.data[self._in[1]] = data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def pixels(uri: str) -> np.ndarray:
    """Decode the picture in a data URI."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))
