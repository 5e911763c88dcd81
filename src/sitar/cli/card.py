from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="The run that the card is about, and runs with other seeds of it."),
    ],
    out: Annotated[Path, typer.Option(help="The Markdown file to write.")] = Path("README.md"),
    name: Annotated[str | None, typer.Option(help="Name of the model; default: data and method.")] = None,
    licence: Annotated[
        str | None, typer.Option("--license", help="Licence of the model, such as mit or cc-by-4.0.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is already there.")] = False,
) -> None:
    """Write a model card, as Hugging Face shows it: groups with intervals, limits, and the audit's verdict."""
    from sitar.reporting.card.card import write_card

    typer.echo(f"Card: {write_card(runs, out, name=name, licence=licence, force=force)}")
