"""The command line in this process: exit status 0 is success, and 2 with one message is a SitarError."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from sitar.cli.main import main
from sitar.errors import SitarError


class CommandError(SitarError):
    """A command has ended with exit status 2 and a message."""


class BadEndError(Exception):
    """A command has ended with another exit status, or with no message."""


def command(arguments: Sequence[str], folder: Path) -> str:
    """Call `sitar ARGUMENTS` in a folder. Return what it printed."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    before, status = sys.argv, 0
    logging.root.handlers = []
    os.environ.pop("SITAR_DEBUG", None)
    try:
        sys.argv = ["sitar", *arguments]
        with redirect_stdout(out), redirect_stderr(err), chdir(folder):
            main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
    finally:
        sys.argv = before
    said, complained = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    if status == 2 and (complained or said).strip() and "Traceback" not in complained:  # without arguments, the help
        raise CommandError(complained or said)
    if status != 0 or "Traceback" in complained:
        raise BadEndError(f"exit status {status}: {complained[-300:]}")
    return said
