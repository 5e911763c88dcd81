from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, print_json, print_table


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    import_: Import = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Evaluate the model of a finished run again, on every split. The run folder is not changed."""
    from sitar.evaluation.trained_model import load
    from sitar.reporting.tables.splits import details_table, groups_table, splits_table
    from sitar.reporting.tables.table import marked

    model = load(run, device)
    splits = model.evaluate()
    if as_json:
        print_json(splits)
        return
    name = f"{model.config.preset}, seed {model.config.seed}"
    tables = [
        splits_table(name, splits, {"classes": model.data.classes, **model.result}),
        details_table("More figures", splits),
    ]
    if any(metrics["groups"] for metrics in splits.values()):
        tables.append(groups_table("Groups", splits, model.result))
    for table in tables:
        print_table(marked(table, {"needs_groups": model.method.needs_groups, **model.result}))
