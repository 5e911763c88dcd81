"""This is the `sitar` command. Every error that a user can cause is one message and exit status 2."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from typing import Annotated, TextIO

import typer

from sitar import __version__
from sitar.cli import data
from sitar.cli.output import printable
from sitar.errors import LostProcessError, SitarError

app = typer.Typer(
    help="Train classifiers that do not fall for shortcuts, without being told what the shortcut is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"sitar {__version__}")
        raise typer.Exit


COMMANDS = (
    "train", "sweep", "evaluate", "predict", "compare", "explain", "report", "audit", "ask", "choose", "refit",
    "theory", "export", "card", "push", "presets", "doctor", "demo",
)  # fmt: skip
for name in COMMANDS:  # each command has its own file
    app.command(name)(importlib.import_module(f"sitar.cli.{name}").command)
app.add_typer(data.app, name="data")


class _Printable(logging.Formatter):
    """Formats a line in which control characters are written out: it may name a file of a stranger."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Printable("%(levelname)s: %(message)s"))
    logging.getLogger("sitar").setLevel(logging.INFO)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before we were started, as `>&-` does
            setattr(sys, name, _nowhere())
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file may be no valid text
    try:
        app()
    except SitarError as error:
        if isinstance(error, LostProcessError) and error.told:
            sys.exit(2)  # the process that failed has said why
        _fail(str(error))
    except MemoryError as error:
        if os.environ.get("SITAR_DEBUG"):
            raise
        _fail(f"The memory is full{f' ({error})' if str(error) else ''}. Take smaller data or a smaller model.")
    except BrokenPipeError:  # whoever read our output, such as `head`, has ended
        sys.stdout = _nowhere()  # what is left in the buffer has nowhere to go
        sys.exit(2)
    except OSError as error:
        if os.environ.get("SITAR_DEBUG"):
            raise
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _fail(message: str) -> None:
    print(f"Error: {printable(message)}", file=sys.stderr)
    sys.exit(2)
