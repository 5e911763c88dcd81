from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, print_json, print_table, say


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs to choose from.")],
    answers: Annotated[
        Path, typer.Option(metavar="FILE", help="CSV file with the columns image and answer, or image and label.")
    ],
    images: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="What the answers are about, and images without one: a folder of images, a table with a column path, "
            "an .npz file with x.",
        ),
    ],
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the paths of a table lie; default: the table's folder.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: beside the run that is chosen.")] = None,
    import_: Import = None,
    device: Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Json = False,
) -> None:
    """Fit the last layer of a run again, to its training data and a person's answers, and write a run folder."""
    from sitar.analysis.refit.refit import refit
    from sitar.reporting.tables.refit import expected_table
    from sitar.reporting.tables.splits import splits_table
    from sitar.reporting.tables.table import marked

    folder = refit(runs, answers, images, root=root, out=out, device=device, progress=not quiet)
    result = folder.result()
    if as_json:
        print_json({"run": str(folder.path), **result})
        return
    table = splits_table(f"{result.get('preset')}, seed {result['seed']}", result["splits"], result)
    print_table(marked(table, result))
    print_table(expected_table(result))
    say(f"Run folder: {folder.path}")
