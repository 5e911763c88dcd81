"""Start this Python again, so that it imports nothing from the working folder.

`python -m` puts the working folder first on the path of modules, so a `gzip.py` that lies beside somebody's images
would be executed. `-P` leaves that folder out, and an empty or relative entry of PYTHONPATH must not bring it back.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ANSWER = "sitar answers "  # begins a line that such a process writes for the one that started it


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in a new process of this Python. Start it with `module_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """Return the environment of such a process. The process imports this very package, however it was imported here."""
    here = os.path.abspath(os.curdir)
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if os.path.isabs(entry) or os.path.abspath(entry) != here]
    package = str(Path(__file__).absolute().parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([package, *map(os.path.abspath, kept)])}


def answer_line(answer: Any) -> str:
    """Return the line by which a process answers the one that started it."""
    return f"{ANSWER}{json.dumps(answer)}\n"


def read_answer(line: str) -> Any:
    """Read such a line. None: somebody else wrote it, such as a `sitecustomize.py` that prints."""
    _, found, text = line.partition(ANSWER)
    try:
        return json.loads(text) if found else None
    except (ValueError, RecursionError):
        return None
