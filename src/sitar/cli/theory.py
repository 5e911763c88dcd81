from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, print_json, print_table, say
from sitar.run_folder import RunFolder


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run of SITAR, with noise.")],
    noise: Annotated[
        str | None, typer.Option(help="A kind of noise of mean 0; default: the noise the run was trained with.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Number of samples of val.")] = 128,
    import_: Import = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Compare what Theorem 1 predicts with the exact objective of a trained classifier, as the noise becomes weaker."""
    from sitar.analysis.theory import examine_theory
    from sitar.reporting.figures.style import to_png
    from sitar.reporting.figures.theory import theory_figure
    from sitar.reporting.tables.theory import order_in_words, theory_table

    folder = RunFolder(run)
    theory = examine_theory(folder, device, noise, samples)
    figure = folder.write_theory(theory, to_png(theory_figure(theory)))
    if as_json:
        print_json(theory)
        return
    print_table(theory_table(theory))
    for comparison in theory["comparisons"]:
        say(order_in_words(comparison, theory["activation"]))
    say(f"Figure: {figure}")
