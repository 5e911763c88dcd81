from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, Set, print_json, print_table


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    on: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|FILE", help="Labelled samples from elsewhere, in a form that data of your own may have."
        ),
    ] = None,
    set_: Set = None,
    import_: Import = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Evaluate the model of a finished run again, on every split, or on labelled samples from elsewhere.

    The run folder is not changed. With --on, --set changes how the samples are read, such as label_column=finding.
    """
    from sitar.errors import ConfigError
    from sitar.evaluation.elsewhere import evaluate_elsewhere
    from sitar.evaluation.trained_model import load
    from sitar.progress import ShownProgress
    from sitar.reporting.tables.splits import details_table, groups_table, splits_table
    from sitar.reporting.tables.table import marked

    if set_ and on is None:
        raise ConfigError("--set says how samples from elsewhere are read. Name them with --on.")
    model = load(run, device)
    known = model.result
    if on is None:
        splits = model.evaluate()
    else:
        with ShownProgress() as shown:
            found = evaluate_elsewhere(model, on, set_ or [], shown.watch)
        splits, known = found.splits, {**known, "attributes": found.attributes}
    if as_json:
        print_json(splits)
        return
    name = f"{model.config.preset}, seed {model.config.seed}" + (f", on {on}" if on else "")
    tables = [
        splits_table(name, splits, {"classes": model.classes, **known}),
        details_table("More figures", splits),
    ]
    if any(metrics["groups"] for metrics in splits.values()):
        tables.append(groups_table("Groups", splits, known))
    for table in tables:
        print_table(marked(table, {"needs_groups": model.method.needs_groups, **model.result}))
