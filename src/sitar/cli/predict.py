from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, say, standard_output
from sitar.wording import counted

NAMED = 5  # inputs that cannot be read, named on standard error


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="A folder of images, image files, a table with a column of paths, Parquet files with images, a table "
            "of features (one or many files), or an .npz file.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .parquet file to write; default: CSV on standard output.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Of two classes, predict the second from this probability on (default 0.5).")
    ] = None,
    axes: Annotated[bool, typer.Option("--axes", help="Also write the latent of each input: z0, z1, ...")] = False,
    root: Annotated[Path | None, typer.Option(help="Folder that the paths of a table lie below.")] = None,
    path_column: Annotated[str | None, typer.Option(help="Column of a table with the paths.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN[,COLUMN]", help="Columns of a table to copy into the predictions, such as id."),
    ] = None,
    import_: Import = None,
    device: Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Predict new inputs: class and probabilities, a row for each. The training data is not needed."""
    from sitar.errors import ConfigError
    from sitar.evaluation.inputs import input_windows
    from sitar.evaluation.prediction_table import Predictor, write_predictions
    from sitar.evaluation.trained_model import load
    from sitar.progress import ShownProgress

    if out is not None and any(out.exists() and one.exists() and out.samefile(one) for one in inputs):
        raise ConfigError(f"{str(out)!r} is an input, and would be lost. Name another file with --out.")
    model = load(run, device)
    kept = list(dict.fromkeys(column for columns in keep or () for column in columns.split(",")))
    predictor = Predictor(model, threshold, axes, kept)
    size = model.method.evaluation_batch  # the windows are the batches of an evaluation, so both agree to the bit
    total, windows = input_windows(list(inputs), model, size, root=root, path_column=path_column, keep=kept)
    with ShownProgress(not quiet) as shown:
        watch = shown.watch("inputs predicted", total)
        predicted, unreadable = write_predictions(predictor, windows, out or standard_output(), watch)
    for name, reason in list(unreadable.items())[:NAMED]:
        say(f"cannot be read: {name}: {reason}", err=True)
    if out is not None:
        rest = f", {len(unreadable):,} cannot be read (column error)" if unreadable else ""
        typer.echo(f"{counted(predicted, 'input')} predicted{rest}: {out}")
