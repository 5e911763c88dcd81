"""Print tables for people, and JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TextIO, cast

import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from sitar.reporting.tables.table import Table

LABEL_WIDTH = 30  # of the first column; a wider one is folded
PLAIN_WIDTH = 160  # width of tables if standard output is not a terminal

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as method.alpha=0.5.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]


def printable(text: str) -> str:
    """Return text in which control characters are written out. A name could else steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line for people."""
    typer.echo(printable(text), err=err)


class _Terminal(io.TextIOBase):
    """Passes text on to standard output, with control characters written out."""

    def write(self, text: str) -> int:
        sys.stdout.write(printable(text))
        return len(text)


def standard_output() -> TextIO:
    """Return standard output, for names that a stranger may have chosen. Files and pipes are given them as they are."""
    return cast(TextIO, _Terminal()) if sys.stdout.isatty() else sys.stdout


def print_table(table: Table) -> None:
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    title, note = Text(printable(table.title)), Text(printable(table.note)) if table.note else None
    shown = RichTable(title=title, title_justify="left", caption=note, caption_justify="left")
    for i, (column, values) in enumerate(zip(table.columns, zip(*table.rows, strict=True), strict=True)):
        label = i == 0 and max(map(len, values)) <= LABEL_WIDTH
        shown.add_column(
            Text(printable(column)), justify="right" if table.is_numeric(i) else "left", overflow="fold", no_wrap=label
        )
    for row in table.rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console.print(shown)


def print_csv(records: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each record, below the names of its values. What is missing is empty."""
    writer = csv.DictWriter(standard_output(), list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
