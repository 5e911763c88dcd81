from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, Set, print_json, print_table


def command(
    preset: Annotated[str, typer.Argument(help="A preset (see `sitar presets`) or a .yaml file of your own.")],
    set_: Set = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of initialisation, sample order and noise.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/PRESET/seedN.")] = None,
    import_: Import = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped, exactly.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Json = False,
) -> None:
    """Train the model that a preset describes, evaluate it, and write a run folder."""
    from sitar.reporting.tables.splits import splits_table
    from sitar.reporting.tables.table import marked
    from sitar.training.run import train

    try:
        folder = train(
            preset, seed=seed, overrides=set_ or [], out=out, device=device, resume=resume, progress=not quiet
        )
    except KeyboardInterrupt:
        arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
        print(f"\nStopped. Continue with: sitar {shlex.join(arguments)} --resume", file=sys.stderr)
        raise typer.Exit(130) from None
    result = folder.result()
    if as_json:
        print_json(result)
        return
    name = f"{result.get('preset', preset)}, seed {result['seed']}"
    table = splits_table(name, result["splits"], len(result.get("classes", ())))
    print_table(marked(table, result.get("needs_groups", False)))
    typer.echo(f"Run folder: {folder.path}")
