from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sitar.cli.imports import Import
from sitar.cli.output import Device, Json, Set, print_json, print_table, say
from sitar.errors import ConfigError


def command(
    preset: Annotated[str, typer.Argument(help="A preset (see `sitar presets`) or a .yaml file of your own.")],
    set_: Set = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of initialisation, sample order and noise.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds, such as 0-4 or 0,2,5: a run for each, trained together.")
    ] = None,
    stack: Annotated[
        str, typer.Option(help="With --seeds: auto, the faster way; always, together; never, one after another.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default runs/PRESET/seedN. With --seeds, where these are.")
    ] = None,
    import_: Import = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped, exactly.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Json = False,
) -> None:
    """Train the model that a preset describes, evaluate it, and write a run folder."""
    from sitar.reporting.tables.heads import heads_table
    from sitar.reporting.tables.splits import splits_table
    from sitar.reporting.tables.table import marked
    from sitar.training.processes import launch
    from sitar.training.run import train

    launched = launch()
    numbers = _numbers(seed, seeds)
    options = {"overrides": set_ or [], "out": out, "device": device, "resume": resume, "progress": not quiet}
    try:
        if len(numbers) > 1:
            _train_seeds(preset, numbers, stack, options, as_json)
            return
        folder = train(preset, seed=numbers[0], **options)
    except KeyboardInterrupt:
        arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
        again = f"sitar {shlex.join(arguments)} --resume" if launched is None else "the same command and --resume"
        print(f"\nStopped. Continue with: {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    if launched is not None and launched.rank > 0:  # the first process shows the result
        return
    result = folder.result()
    if as_json:
        print_json(result)
        return
    name = f"{result.get('preset', preset)}, seed {result['seed']}"
    table = splits_table(name, result["splits"], result)
    print_table(marked(table, result))
    if "heads" in result:
        print_table(heads_table(result["heads"]))
    say(f"Run folder: {folder.path}")


def _numbers(seed: int | None, seeds: str | None) -> Sequence[int | None]:
    """Return the seeds to train. None stands for that of the preset."""
    from sitar.sweeps.axes import parse_seeds

    if seeds is None:
        return [seed]
    if seed is not None:
        raise ConfigError("--seed is one seed and --seeds are several. Use one of them.")
    return parse_seeds(seeds)


def _train_seeds(
    preset: str, seeds: Sequence[int | None], stack: str, options: dict[str, Any], as_json: bool
) -> None:  # fmt: skip
    """Train several seeds, and show a row for each. One that fails stops no other, and the exit status tells it."""
    from sitar.reporting.tables.seeds import seeds_table
    from sitar.training.copies.seeds import train_seeds

    trained = train_seeds(preset, [seed for seed in seeds if seed is not None], stack=stack, **options)  # type: ignore[arg-type]
    results = {run.seed: None if run.error is not None else run.folder.result() for run in trained}
    if as_json:
        print_json([
            {"seed": run.seed, "folder": str(run.folder.path), "result": results[run.seed],
             "error": None if run.error is None else str(run.error)}
            for run in trained
        ])  # fmt: skip
    else:
        print_table(seeds_table(preset, results))
        for run in trained:
            say(f"Run folder: {run.folder.path}" + (" (failed)" if run.error else ""))
    for run in trained:
        if run.error is not None:
            say(f"Failed: seed {run.seed}: {run.error}", err=True)
    if any(run.error is not None for run in trained):
        raise typer.Exit(2)
