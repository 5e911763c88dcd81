from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, print_json, print_table, say
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
    """Explain what models use, where they look and what they get wrong. The findings stay in the run folders."""
    from sitar.analysis.explain.explain import explain_runs
    from sitar.reporting.comparison import names_of
    from sitar.reporting.tables.explain import explain_table, shared_axes_tables

    bounds = None if box is None else parse_box(box)
    folders = [RunFolder(run) for run in runs]
    explanations = list(explain_runs(folders, None if axes is None else RunFolder(axes), bounds, device))
    if as_json:
        print_json([{"run": str(run), **explanation} for run, explanation in zip(runs, explanations, strict=True)])
        return
    names = names_of(explanations, runs)
    for table in [explain_table(explanations, names), *shared_axes_tables(explanations, names)]:
        print_table(table)
    for folder, explanation in zip(folders, explanations, strict=True):
        for line in missing_in_words(explanation["reasons"]):
            say(f"{folder.path}: {line}")
        say(f"Findings: {folder.explain_file}")


def missing_in_words(reasons: Mapping[str, str]) -> list[str]:
    """Write one line for each reason, with all parts that are missing for it."""
    parts: dict[str, list[str]] = {}
    for part, reason in reasons.items():
        parts.setdefault(reason, []).append(part)
    return [f"no {', '.join(names)}. {reason}" for reason, names in parts.items()]


def parse_box(text: str) -> tuple[float, float, float, float]:
    """Read the four numbers of --box."""
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
