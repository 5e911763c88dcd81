from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, Set, print_json, print_table, say
from sitar.errors import ConfigError
from sitar.wording import counted

if TYPE_CHECKING:
    from sitar.sweeps.sweep import Request, Sweep


def command(
    preset: Annotated[str, typer.Argument(help="A preset (see `sitar presets`) or a .yaml file of your own.")],
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Repeatable: a setting to vary, such as method.alpha=0.1,0.5,1. A search also draws from a range, "
            "such as method.alpha=0.01..10:log.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of every setting, such as 0-4 or 0,2,5.")] = "0",
    set_: Set = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="The metric of val that chooses; default: that of train.selection, or val_average. A rule that reads "
            "groups or val_ood must be named, such as val_worst_group or val_ood_average, and the table marks it."
        ),
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="optuna", help="Draw settings with Optuna, in place of a grid.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Settings that a search draws; default 30.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; default runs/sweeps/PRESET.")] = None,
    engine: Annotated[str, typer.Option(help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Runs at a time; default: one for each GPU, or for each core but at most 4; ray: all that fit."
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="With ray: an existing cluster, such as auto or ray://HOST:10001.")
    ] = None,
    resources: Annotated[
        str | None, typer.Option(metavar="NAME=AMOUNT", help="With ray: what one run needs, such as cpu=2,gpu=0.25.")
    ] = None,
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and run nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    import_: Import = None,
    as_json: Json = False,
) -> None:
    """Train a preset with many settings and seeds, and choose a setting by val. The same command continues."""
    from sitar.sweeps.sweep import make_engine, make_request, run

    needs = _resources(resources)
    request = make_request(
        preset, over=over or [], seeds=seeds, overrides=set_ or [], out=out, select=select, search=search,
        trials=trials, device=device,
    )  # fmt: skip
    if dry_run:
        _list_runs(request, as_json)
        return
    made = make_engine(engine, request, workers=workers, address=address, resources=needs, device=device)
    try:
        done = run(request, made, progress=not quiet)
    except KeyboardInterrupt:
        print("\nStopped. The same command continues; finished runs are kept.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print_json(done.record)
    else:
        _show(done)
    for failure in done.failed:
        print(
            f"Failed: {failure['name']}, seed {failure['seed']}: {failure['error']}\n  Log: {failure['log']}",
            file=sys.stderr,
        )
    if done.failed:
        print(f"{counted(len(done.failed), 'run')} failed. The same command tries again.", file=sys.stderr)
        raise typer.Exit(1)


def _show(done: Sweep) -> None:
    print_table(done.table())
    if done.chosen is not None:
        say(f"Chosen: {done.chosen['name']}   Its runs: {done.folder / done.chosen['name']}")
    elif not done.failed:
        say(f"Nothing is chosen: no run has a {done.record['select']['split']} split with this metric.")
    say(f"Record: {done.folder / 'sweep.json'}" + (f"   Figure: {done.figure}" if done.figure.exists() else ""))


def _list_runs(request: Request, as_json: bool) -> None:
    plan = request.plan
    if request.trials is not None and not as_json:
        say(f"A search of {counted(request.trials, 'trial')}, {counted(len(plan.seeds), 'seed')} each, in {plan.root}.")
        return
    folders = [(plan.folder(point, seed), point, seed) for seed in plan.seeds for point in request.points]
    listed = [
        {"folder": str(folder.path), "seed": seed, "values": dict(point.values),
         "state": "finished" if plan.is_finished(point, seed) else "continues" if folder.is_started else "new"}
        for folder, point, seed in folders
    ]  # fmt: skip
    if as_json:
        print_json({"trials": request.trials, "select": request.rule.name, "runs": listed})
        return
    for run in listed:
        say(f"{run['folder']}  ({run['state']})")
    new = sum(run["state"] != "finished" for run in listed)
    say(f"{counted(len(listed), 'run')}, {new} to do. Chosen by {request.rule.name}.")


def _resources(text: str | None) -> dict[str, float]:
    """Read what a run needs, such as cpu=2,gpu=0.25."""
    needs = {}
    for part in (text or "").split(",") if text else ():
        name, equals, amount = part.partition("=")
        try:
            needs[name.strip()] = float(amount)
        except ValueError:
            equals = ""
        if not equals or not name.strip() or not 0 <= needs.get(name.strip(), -1) < float("inf"):
            raise ConfigError(f"--resources {text!r} is not of the form NAME=AMOUNT, such as cpu=2,gpu=0.25.")
    return needs
