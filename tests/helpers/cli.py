"""The `sitar` command in this process: a process of its own imports torch again, which takes seconds."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from sitar.cli.main import main


class Done(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


def sitar(*arguments: object, cwd: Path | None = None, expect: int = 0) -> Done:
    """Call `sitar ARGUMENTS` in the folder `cwd`. An error that would end in a traceback is raised here."""
    out, err = _stream("strict"), _stream("backslashreplace")  # as Python opens the two
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(sys, "argv", ["sitar", *map(str, arguments)])
        stack.enter_context(_no_logging())
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        stack.enter_context(chdir(cwd or Path.cwd()))
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
    done = Done(_text(out), _text(err))
    assert status == expect, done.stdout + done.stderr
    return done


def sitar_error(*arguments: object, cwd: Path | None = None) -> str:
    """What a command says that ends with exit status 2."""
    return sitar(*arguments, cwd=cwd, expect=2).stderr


@contextmanager
def _no_logging() -> Iterator[None]:
    """As in a new process, in which nobody has set up logging: `main` does, to standard error."""
    loggers = (logging.root, logging.getLogger("sitar"))
    handlers, levels = logging.root.handlers, [logger.level for logger in loggers]
    logging.root.handlers = []
    try:
        yield
    finally:
        logging.root.handlers = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _stream(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    content = stream.buffer
    assert isinstance(content, io.BytesIO)
    return content.getvalue().decode("utf-8")
