from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, print_json, print_table
from sitar.errors import ConfigError
from sitar.run_folder import RunFolder


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    axes: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="The run whose VAE all are measured with; default: the first given one that decodes the same images.",
        ),
    ] = None,
    box: Annotated[
        str | None,
        typer.Option(
            metavar="X0,Y0,X1,Y1",
            help="Where Grad-CAM's mass is counted, in fractions of the image from its upper left corner; default: the "
            "dataset's own, such as the faces of CelebA.",
        ),
    ] = None,
    import_: Import = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What does a model use, where does it look, what does it get wrong? Left in the run folders for reports."""
    from sitar.analysis.explain.explain import explain_runs
    from sitar.reporting.tables import explain_table, through_tables

    bounds = None if box is None else parse_box(box)
    ruler = None if axes is None else RunFolder(axes)
    found = list(explain_runs([RunFolder(run) for run in runs], ruler, bounds, device))
    if as_json:
        print_json([{"run": str(run), **one} for run, one in zip(runs, found, strict=True)])
        return
    for table in [explain_table(found), *through_tables(found)]:
        print_table(table)
    for run, one in zip(runs, found, strict=True):
        for line in missing_in_words(one):
            typer.echo(f"{run}: {line}")
        typer.echo(f"Findings: {RunFolder(run).explain_file}")


def missing_in_words(found: dict[str, Any]) -> list[str]:
    """One line a reason, whatever it is the reason for."""
    parts: dict[str, list[str]] = {}
    for part, reason in found["reasons"].items():
        parts.setdefault(reason, []).append(part)
    return [f"no {', '.join(names)}. {reason}" for reason, names in parts.items()]


def parse_box(text: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = map(float, text.split(","))
    except ValueError:
        x0 = y0 = x1 = y1 = -1.0
    if not (0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1):
        raise ConfigError(
            f"--box {text!r} is no box: give left, top, right and bottom as fractions of the image, such as "
            "0.25,0.3,0.75,0.8."
        )
    return x0, y0, x1, y1
