from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.output import print_table, say
from sitar.errors import RunError
from sitar.run_folder import RunFolder


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    repository: Annotated[str, typer.Argument(metavar="REPO_ID", help="OWNER/NAME on the Hugging Face hub.")],
    yes: Annotated[bool, typer.Option("--yes", help="Upload. Without it, only show what would be uploaded.")] = False,
    card: Annotated[
        Path | None, typer.Option(help="A card of yours; default: the one that `sitar card` writes.")
    ] = None,
    licence: Annotated[
        str | None, typer.Option("--license", help="Licence of the model, such as mit or cc-by-4.0.")
    ] = None,
    only_exported: Annotated[
        bool, typer.Option("--only-exported", help="The card and the exported files, without the run's weights.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository that everybody sees.")] = False,
) -> None:
    """Publish a model on the Hugging Face hub. Without --yes nothing is sent: the files and the card are shown."""
    from sitar.export.bundle import bundle
    from sitar.export.hub import check_repository, upload
    from sitar.reporting.card.card import make_card
    from sitar.reporting.tables.table import Table

    name = check_repository(repository).partition("/")[2]
    if card is None:
        text = make_card([run], name=name, licence=licence, repository=repository, only_exported=only_exported)
    else:
        text = _read(card)
    try:
        files = bundle(RunFolder(run), text, only_exported=only_exported)
    except (ValueError, RecursionError) as error:  # such as NaN, which JSON does not have
        raise RunError(f"The run in {str(run)!r} is damaged, so it is not published: {error}.") from error
    if not yes:
        say(text)
    rows = [[file.name, f"{file.size:,}"] for file in files]
    total = sum(file.size for file in files)
    print_table(Table(f"To {repository}", ["file", "bytes"], rows, f"{total / 1e6:.1f} MB in all."))
    if yes:
        typer.echo(f"Uploaded: {upload(files, repository, public=public)}")
    else:
        typer.echo("Nothing was sent. The card is above. Add --yes to upload these files, and no others.")


def _read(card: Path) -> str:
    try:
        return card.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RunError(f"The card {str(card)!r} cannot be read: {error}.") from error
