from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sitar.cli.output import Device, Json, Set, print_json, print_table
from sitar.config import RunConfig
from sitar.errors import SitarError
from sitar.interpreter import module_command, module_environment
from sitar.presets import load_config
from sitar.run_folder import RunFolder

RUNS = {"ERM": "demo/erm", "control": "demo/control", "SITAR": "demo/sitar"}
LOOK_SECONDS, LINE_SECONDS = 0.5, 15.0


def command(
    set_: Set = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the three runs.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the runs, the figure and the report.")] = Path("runs/demo"),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train ERM, the control and SITAR on digits whose colour gives the label away.

    This takes a few minutes on a laptop.
    """
    from sitar.analysis.explain.explain import explain_runs
    from sitar.reporting.comparison import group_runs, read_runs
    from sitar.reporting.figures.demo import demo_figure
    from sitar.reporting.figures.style import save
    from sitar.reporting.html.report import write_report
    from sitar.reporting.tables.runs import compare_table

    started = time.perf_counter()
    configs = {label: load_config(preset, set_ or [], seed) for label, preset in RUNS.items()}
    folders = {label: RunFolder(out / f"{preset.rpartition('/')[2]}-seed{seed}") for label, preset in RUNS.items()}
    options = [word for setting in set_ or [] for word in ("--set", setting)]
    _train_all(folders, configs, ["--seed", str(seed), "--device", device, *options])
    figure = out / f"demo-seed{seed}.png"
    save(demo_figure(folders), figure)
    runs = list(folders.values())
    if not all(folder.is_explained for folder in runs):
        for _ in explain_runs(runs, device=device):
            pass
    report = write_report(
        [folder.path for folder in runs], out / f"report-seed{seed}.html", "sitar demo: coloured digits"
    )
    if as_json:
        results = {label: folder.result() for label, folder in folders.items()}
        print_json({"runs": results, "figure": str(figure), "report": str(report)})
        return
    print_table(compare_table(group_runs(read_runs([folder.path for folder in runs])), ["average"]))
    erm, sitar = (100 * (folders[label].result()["splits"]["ood_test"]["average"] or 0) for label in ("ERM", "SITAR"))
    typer.echo(
        f"When the colour turns against the label, ERM falls to {erm:.0f} % and SITAR keeps {sitar:.0f} % "
        "(75 % is the best that shape alone allows)."
    )
    typer.echo(f"Figure: {figure}   Runs: {out}   Time: {time.perf_counter() - started:.0f} s")
    typer.echo(f"Report, to open in a browser: {report.resolve()}")


def _train_all(folders: dict[str, RunFolder], configs: dict[str, RunConfig], options: list[str]) -> None:
    """Train the runs that are not finished, two at a time with one thread each.

    This is faster here than one run at a time with two threads.
    """
    from sitar.training.run import train_config

    epochs = {label: config.train.epochs for label, config in configs.items()}
    running: list[subprocess.Popen[str]] = []

    def train(label: str) -> tuple[int, str]:
        if folders[label].is_done:  # only its settings are compared, which needs no process
            try:
                train_config(configs[label], folders[label], resume=True)
            except SitarError as error:
                return 2, str(error)
            return 0, ""
        arguments = ["train", RUNS[label], "--out", str(folders[label].path), "--resume", "--quiet", *options]
        process = subprocess.Popen(
            module_command("sitar", *arguments),
            env={**module_environment(), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        running.append(process)
        _, message = process.communicate()  # this also closes the pipe
        return process.returncode, message

    longest_first = list(reversed(folders))
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        jobs = {label: pool.submit(train, label) for label in longest_first}
        try:
            _watch(folders, epochs, lambda: all(job.done() for job in jobs.values()))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            print("\nStopped. The same command continues where it was.", file=sys.stderr)
            raise typer.Exit(130) from None
    for label, job in jobs.items():
        status, message = job.result()
        if status:
            raise SitarError(f"{label} stopped (status {status}). {message.removeprefix('Error: ').strip()}")


def _watch(folders: dict[str, RunFolder], epochs: dict[str, int], finished: Callable[[], bool]) -> None:
    """Show how far each run is until all are finished. The run folders tell."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks = {label: bars.add_task(label, total=epochs[label]) for label in folders}
        last_line = time.monotonic()
        while not finished():
            time.sleep(LOOK_SECONDS)
            done = {label: len(folder.metrics()) for label, folder in folders.items()}
            for label, task in tasks.items():
                bars.update(task, completed=done[label])
            if not console.is_terminal and time.monotonic() - last_line > LINE_SECONDS:
                last_line = time.monotonic()
                line = ", ".join(f"{label} {done[label]}/{epochs[label]}" for label in folders)
                print(f"epochs: {line}", file=sys.stderr, flush=True)
