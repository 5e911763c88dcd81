"""Print tables for people, and JSON for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from sitar.reporting.tables.table import Table

LABEL_WIDTH = 30  # of the first column; a wider one is folded
PLAIN_WIDTH = 160  # width of tables if standard output is not a terminal

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as method.alpha=0.5.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]


def print_table(table: Table) -> None:
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    shown = RichTable(title=table.title, title_justify="left", caption=table.note or None, caption_justify="left")
    for i, (column, values) in enumerate(zip(table.columns, zip(*table.rows, strict=True), strict=True)):
        label = i == 0 and max(map(len, values)) <= LABEL_WIDTH
        shown.add_column(column, justify="right" if table.is_numeric(i) else "left", overflow="fold", no_wrap=label)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)


def print_csv(records: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each record, below the names of its values. What is missing is empty."""
    writer = csv.DictWriter(sys.stdout, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
