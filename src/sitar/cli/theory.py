from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, print_json, print_table
from sitar.reporting.tables import unsettled_order
from sitar.run_folder import RunFolder


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run of SITAR, with noise.")],
    noise: Annotated[
        str | None, typer.Option(help="A kind of noise of mean 0; default: the noise the run was trained with.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Samples of val.")] = 128,
    import_: Import = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Hold Theorem 1 against a trained classifier: what it predicts, what is exact, and how the difference falls."""
    from sitar.analysis.theory import examine_theory
    from sitar.reporting.figures.style import theory_figure, to_png
    from sitar.reporting.tables import theory_table

    folder = RunFolder(run)
    theory = examine_theory(folder, device, noise, samples)
    figure = folder.write_theory(theory, to_png(theory_figure(theory)))
    if as_json:
        print_json(theory)
        return
    print_table(theory_table(theory))
    for comparison in theory["comparisons"]:
        typer.echo(order_in_words(comparison, theory["activation"]))
    typer.echo(f"Figure: {figure}")


def order_in_words(comparison: dict, activation: str) -> str:
    distribution, order = comparison["distribution"], comparison["order"]
    expected = 3 if distribution == "skewed" else 4
    if (slope := unsettled_order(comparison)) is not None:
        return (
            f"{distribution} noise: the remainder is not at its limit yet, where alpha^{expected} is expected: its "
            f"slope still changes, and is {slope:.2f} at the smallest alphas."
        )
    if order is not None:
        return f"{distribution} noise: the remainder falls as alpha^{order:.2f} (expected: {expected})."
    if activation == "relu":
        return f"{distribution} noise: no order, as ReLU is not smooth and the theorem does not hold at its kinks."
    return f"{distribution} noise: no order, as the remainder is no larger than rounding."
