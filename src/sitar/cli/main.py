"""This is the `sitar` command. Every error that a user can cause is one message and exit status 2."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from typing import Annotated

import typer

from sitar import __version__
from sitar.cli import data
from sitar.errors import SitarError

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
    "train", "evaluate", "predict", "compare", "explain", "report", "audit", "ask", "choose", "refit", "theory",
    "export", "card", "push", "presets", "doctor", "demo",
)  # fmt: skip
for name in COMMANDS:  # each command has its own file
    app.command(name)(importlib.import_module(f"sitar.cli.{name}").command)
app.add_typer(data.app, name="data")


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("sitar").setLevel(logging.INFO)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file may be no valid text
    try:
        app()
    except SitarError as error:
        _fail(str(error))
    except OSError as error:
        if os.environ.get("SITAR_DEBUG"):
            raise
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))


def _fail(message: str) -> None:
    print(f"Error: {message}", file=sys.stderr)
    sys.exit(2)
