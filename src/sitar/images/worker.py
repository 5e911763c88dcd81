"""A process that decodes a share of the images: `python -m sitar.images.worker`, its task as JSON on standard input.

It writes pixels into the array that all share, and prints a line of JSON for every few images: which, and what was
wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from numpy.lib.format import open_memmap

from sitar.images.decode import BadImageError, decode
from sitar.images.files import Files

REPORT = 64  # images a line


def work(task: dict[str, Any]) -> None:
    files = Files(map(Path, task["folders"]), map(Path, task["archives"]))
    images, size = open_memmap(task["array"], mode="r+"), (task["size"][0], task["size"][1])
    places, names = task["places"], task["names"]
    for start in range(0, len(places), REPORT):
        bad = {}
        for place, name in zip(places[start : start + REPORT], names[start : start + REPORT], strict=True):
            try:
                images[place] = decode(files.read(name), size, task["crop_pct"])
            except FileNotFoundError:
                bad[place] = "there is no such file"
            except BadImageError as error:
                bad[place] = str(error)
        print(json.dumps({"done": places[start : start + REPORT], "bad": bad}), flush=True)


if __name__ == "__main__":
    work(json.load(sys.stdin))
