from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, Set, print_json, print_table


def command(
    what: Annotated[
        str,
        typer.Argument(
            help="Your data (a folder a class, a .csv or .parquet table, an .npz file), a finished run, or a preset."
        ),
    ],
    root: Annotated[str | None, typer.Option(help="Folder with the images of a table, or of a preset.")] = None,
    set_: Set = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the VAE.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder of the VAE; default runs/PRESET/seedN.")] = None,
    import_: Import = None,
    device: Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Json = False,
) -> None:
    """Find latent axes that give the label away, and so tempt a model with a shortcut. Group labels are not needed."""
    from sitar.analysis.audit.audit import audit_run, train_and_audit
    from sitar.analysis.audit.target import find_target
    from sitar.errors import ConfigError
    from sitar.presets import load_config
    from sitar.reporting.figures.audit_figure import draw_audit
    from sitar.reporting.tables.audit import audit_table
    from sitar.run_folder import RunFolder
    from sitar.training.run import default_folder

    target = find_target(what, set_ or [], root)
    if isinstance(target, RunFolder):
        if out is not None or seed is not None:
            raise ConfigError(f"{what!r} is a run, and the audit is written into it: leave --out and --seed out.")
        folder, audit = target, audit_run(target, device)
    else:
        preset, overrides = target
        config = load_config(preset, overrides, seed)
        folder = RunFolder(default_folder(config, overrides) if out is None else out)
        try:
            audit = train_and_audit(config, folder, overrides=overrides, device=device, progress=not quiet)
        except KeyboardInterrupt:
            print("\nStopped. The same command continues where it was.", file=sys.stderr)
            raise typer.Exit(130) from None
    drawn = draw_audit(folder)
    if as_json:
        print_json({"run": str(folder.path), **audit})
        return
    if audit["axes"]:
        print_table(audit_table(audit))
    for sentence in [audit["verdict"]["words"], *audit["notes"]]:
        typer.echo(sentence)
    if drawn:
        typer.echo("Pictures: " + "  ".join(map(str, drawn)))
    typer.echo(f"Findings: {folder.audit_file}")
