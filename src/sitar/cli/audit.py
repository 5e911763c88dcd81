from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, Set, print_json, print_table, say


def command(
    what: Annotated[
        str,
        typer.Argument(
            help="Your data (a folder for each class, one or many .csv or .parquet tables, an .npz file), a finished "
            "run, or a preset."
        ),
    ],
    root: Annotated[str | None, typer.Option(help="Folder with the images of a table, or of a preset.")] = None,
    table: Annotated[str | None, typer.Option(help="Table in the folder, where it has several.")] = None,
    first: Annotated[bool, typer.Option("--first", help="Stop after the first look: train no VAE.")] = False,
    set_: Set = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the VAE.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder of the VAE; default runs/PRESET/seedN.")] = None,
    import_: Import = None,
    device: Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Json = False,
) -> None:
    """Find simple cues and latent axes that tell the label, and so tempt a model. Group labels are not needed."""
    from sitar.analysis.audit.audit import audit_run, take_first_look, train_and_audit
    from sitar.analysis.audit.target import find_target
    from sitar.config import run_config
    from sitar.errors import ConfigError
    from sitar.presets import load_config
    from sitar.reporting.figures.audit_figure import draw_audit
    from sitar.reporting.tables.audit import audit_table
    from sitar.run_folder import RunFolder
    from sitar.training.run import default_folder

    show = _ignore if as_json else _show_first_look
    target = find_target(what, set_ or [], root, table)
    if isinstance(target, RunFolder):
        if out is not None or seed is not None:
            raise ConfigError(f"{what!r} is a run, and the audit is written into it: leave --out and --seed out.")
        folder = target
        if first:
            folder.result()  # refuses a run that is not finished
            audit = take_first_look(run_config(folder.read_config()), folder, progress=not quiet)
            show(audit["first_look"])
        else:
            audit = audit_run(target, device, show)
    else:
        preset, overrides = target
        config = load_config(preset, overrides, seed)
        place = default_folder(config, overrides) if out is None else out
        try:
            if first:
                folder = RunFolder(place.with_name(f"{place.name}-first") if out is None else place)
                audit = take_first_look(config, folder, progress=not quiet)
                show(audit["first_look"])
            else:
                folder = RunFolder(place)
                audit = train_and_audit(
                    config, folder, overrides=overrides, device=device, progress=not quiet, on_first_look=show
                )
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
        say(sentence)
    if drawn:
        say("Pictures: " + "  ".join(map(str, drawn)))
    say(f"Findings: {folder.audit_file}")


def _show_first_look(look: dict[str, Any]) -> None:
    """Print what the first look has found, at once: the VAE takes minutes."""
    from sitar.reporting.tables.audit import first_look_table

    if look["cues"]:
        print_table(first_look_table(look))
    say(look["verdict"]["words"])
    for asked in dict.fromkeys(cue["question"] for cue in [*look["same_as_label"], *look["cues"]] if cue["question"]):
        say(f"  - {asked}")


def _ignore(look: dict[str, Any]) -> None:
    """Print nothing."""
