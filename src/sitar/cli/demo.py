from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

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

    This takes two to three minutes on a laptop.
    """
    started = time.perf_counter()
    folders = {label: RunFolder(out / f"{preset.rpartition('/')[2]}-seed{seed}") for label, preset in RUNS.items()}
    options = [word for setting in set_ or [] for word in ("--set", setting)]
    with _started(folders, ["--seed", str(seed), "--device", device, *options]) as trainings:
        import torch  # takes seconds, while the runs train

        from sitar.analysis.explain.explain import explain_runs
        from sitar.reporting.comparison import group_runs, read_runs
        from sitar.reporting.figures.demo import demo_figure
        from sitar.reporting.figures.style import save
        from sitar.reporting.html.report import write_report
        from sitar.reporting.tables.runs import compare_table

        _finish(folders, {label: load_config(preset, set_ or [], seed) for label, preset in RUNS.items()}, trainings)
    figure = out / f"demo-seed{seed}.png"
    save(demo_figure(folders), figure)
    runs = list(folders.values())
    if not all(folder.is_explained for folder in runs):
        torch.set_num_threads(1)  # for models so small, two are slower where another program uses a core
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


class Training(NamedTuple):
    """A run that trains in a process of its own, and what the process has printed once it has ended."""

    process: subprocess.Popen[str]
    printed: Future[tuple[str, str]]

    @property
    def status(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self.process.returncode if self.printed.done() else None


@contextmanager
def _started(folders: dict[str, RunFolder], options: list[str]) -> Iterator[dict[str, Training]]:
    """Start the runs that are not finished, in processes of one thread each. Stop them if anything goes wrong.

    Small runs side by side make better use of the cores than threads do.
    """
    trainings: dict[str, Training] = {}
    with ThreadPoolExecutor(len(folders)) as pool:
        try:
            for label, folder in folders.items():
                if not folder.is_done:
                    arguments = ["train", RUNS[label], "--out", str(folder.path), "--resume", "--quiet", *options]
                    process = subprocess.Popen(
                        module_command("sitar", *arguments),
                        env={**module_environment(), "OMP_NUM_THREADS": "1"},
                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                    )  # fmt: skip
                    trainings[label] = Training(process, pool.submit(process.communicate))
            yield trainings
        except KeyboardInterrupt:
            print("\nStopped. The same command continues where it was.", file=sys.stderr)
            raise typer.Exit(130) from None
        finally:
            for training in trainings.values():
                training.process.terminate()  # which does nothing where it has ended


def _finish(folders: dict[str, RunFolder], configs: dict[str, RunConfig], trainings: dict[str, Training]) -> None:
    """Wait for the runs. One that was finished before is only held against the settings."""
    from sitar.training.run import train_config

    for label, folder in folders.items():
        if label not in trainings:
            try:
                train_config(configs[label], folder, resume=True)
            except SitarError as error:
                raise SitarError(f"{label} stopped. {error}") from error
    _watch(folders, {label: config.train.epochs for label, config in configs.items()}, trainings)
    for label, training in trainings.items():
        if training.status:
            _, message = training.printed.result()
            raise SitarError(f"{label} stopped (status {training.status}). {message.removeprefix('Error: ').strip()}")


def _watch(folders: dict[str, RunFolder], epochs: dict[str, int], trainings: dict[str, Training]) -> None:
    """Show how far each run is until all have ended, or one has failed. The run folders tell."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks = {label: bars.add_task(label, total=epochs[label]) for label in folders}
        last_line = time.monotonic()
        while None in (states := [training.status for training in trainings.values()]) and not any(states):
            time.sleep(LOOK_SECONDS)
            done = {label: len(folder.metrics()) for label, folder in folders.items()}
            for label, task in tasks.items():
                bars.update(task, completed=done[label])
            if not console.is_terminal and time.monotonic() - last_line > LINE_SECONDS:
                last_line = time.monotonic()
                line = ", ".join(f"{label} {done[label]}/{epochs[label]}" for label in folders)
                print(f"epochs: {line}", file=sys.stderr, flush=True)
