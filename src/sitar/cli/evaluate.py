from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.output import Device, Json, print_json, print_table


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Evaluate a finished run's model anew on every split; the run folder is not changed."""
    from sitar.reporting.tables import details_table, groups_table, run_title, splits_table
    from sitar.training.load import load

    model = load(run, device)
    splits = model.evaluate()
    if as_json:
        print_json(splits)
        return
    print_table(splits_table(run_title(model.folder.result()), splits))
    print_table(details_table("More figures", splits))
    if any(metrics["groups"] for metrics in splits.values()):
        print_table(groups_table("Groups", splits))
