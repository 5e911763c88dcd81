"""Make a sweep: from a preset and the settings to vary to finished runs, a record and a figure."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sitar.devices import resolve_device
from sitar.errors import ConfigError
from sitar.evaluation.metrics import METRICS
from sitar.presets import load_config
from sitar.reporting.figures.style import save
from sitar.reporting.figures.sweep_figure import sweep_figure
from sitar.reporting.tables.sweep import sweep_table
from sitar.reporting.tables.table import Table
from sitar.run_folder import RunFolder
from sitar.sweeps.axes import Over, parse_over, parse_seeds
from sitar.sweeps.choosing import Rule, check_epochs, make_rule
from sitar.sweeps.engines.job import Ended, Engine
from sitar.sweeps.engines.local import LocalEngine, default_threads, default_workers, visible_gpus
from sitar.sweeps.engines.ray import RayEngine
from sitar.sweeps.folder import SweepFolder
from sitar.sweeps.plan import Plan, Point, default_root, unique
from sitar.sweeps.progress import SweepProgress
from sitar.sweeps.record import Results
from sitar.sweeps.search import Search

ENGINES = ("local", "ray")
TRIALS = 30
HOPELESS = 3  # trials without a result, after which a search ends that has had none


@dataclass(frozen=True)
class Sweep:
    """A sweep is a folder of runs with its record, as sweep.json holds it."""

    folder: Path
    record: dict[str, Any]

    @property
    def points(self) -> list[dict[str, Any]]:
        """Return what was measured at each point."""
        return self.record["points"]

    @property
    def chosen(self) -> dict[str, Any] | None:
        """Return the point that is best on `val`, or None if no point is finished."""
        return next((point for point in self.points if point["name"] == self.record["chosen"]), None)

    @property
    def chosen_runs(self) -> list[RunFolder]:
        """Return the run folders of the chosen point, one for each seed."""
        chosen = self.chosen
        return [] if chosen is None else [
            RunFolder(self.folder / chosen["name"] / f"seed{seed}") for seed in chosen["seeds"]
        ]  # fmt: skip

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Return the runs that failed: point, seed, error and log."""
        return self.record["failed"]

    @property
    def figure(self) -> Path:
        return SweepFolder(self.folder).figure("png")

    def table(self) -> Table:
        """Return the summary: a row for each point, `val` and the test splits beside each other."""
        return sweep_table(self.record)


@dataclass(frozen=True)
class Request:
    """A request is a sweep that was checked, and not yet run."""

    plan: Plan
    rule: Rule
    points: tuple[Point, ...]  # of a grid; a search draws its own
    trials: int | None

    def runs_to_do(self) -> int:
        """Return how many runs are not finished, as far as this is known. A search may draw a point twice."""
        if self.trials is None:
            return len(self.plan.jobs(self.points))
        return self.trials * len(self.plan.seeds) - sum(1 for _ in self.plan.root.glob("*/seed*/done"))

    @property
    def folder(self) -> SweepFolder:
        return SweepFolder(self.plan.root)


def sweep(
    preset: str,
    *,
    over: Over = (),
    seeds: str | int | Iterable[int] = (0,),
    overrides: Iterable[str] = (),
    out: str | os.PathLike[str] | None = None,
    select: str | None = None,
    search: str | None = None,
    trials: int | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    resources: Mapping[str, float] | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Sweep:
    """Train a preset with every combination of settings and every seed, and choose a combination by `val`.

    `over` are the settings to vary: {"method.alpha": [0.1, 0.5, 1]}. With `search="optuna"`, `trials` combinations are
    drawn instead, and a setting may have a range: {"method.alpha": "0.01..10:log"}. `overrides` are "section.key=value"
    strings for all runs. Without `out` the folder is `runs/sweeps/PRESET`, with a short hash of the overrides.
    `select` is a metric of `val`, such as "val_class_balanced", or of `val_ood`, which the table marks. Runs that are
    finished are not made again: the same call continues a sweep that was stopped, exactly. A run that fails does not
    stop the others.
    """
    request = make_request(
        preset, over=over, seeds=seeds, overrides=overrides, out=out, select=select, search=search, trials=trials,
        device=device,
    )  # fmt: skip
    made = make_engine(engine, request, workers=workers, address=address, resources=resources, device=device)
    return run(request, made, progress=progress)


def make_request(
    preset: str,
    *,
    over: Over = (),
    seeds: str | int | Iterable[int] = (0,),
    overrides: Iterable[str] = (),
    out: str | os.PathLike[str] | None = None,
    select: str | None = None,
    search: str | None = None,
    trials: int | None = None,
    device: str = "auto",
) -> Request:
    """Check all that can be checked before anything runs: settings, names, folders, and the rule that chooses."""
    overrides = tuple(overrides)
    root = Path(out) if out is not None else default_root(preset, overrides)
    plan = Plan(preset, overrides, tuple(parse_over(over)), parse_seeds(seeds), root, device)
    rule = make_rule(select, load_config(preset, overrides, plan.seeds[0]))
    if search not in (None, "optuna"):
        raise ConfigError(f"There is no search {search!r}. There is optuna; leave --search out for a grid.")
    if search is None and trials is not None:
        raise ConfigError("--trials is for a search: add --search optuna. A grid has as many points as you list.")
    if trials is not None and trials < 1:
        raise ConfigError(f"--trials {trials}: a search has at least one trial.")
    if search is not None:
        plan = plan.typed()
        check_epochs(rule, (point.config for point in plan.corners()))
        return Request(plan, rule, (), trials or TRIALS)
    points = tuple(plan.grid())
    check_epochs(rule, (point.config for point in points))
    plan.check_folders(points)
    return Request(plan, rule, points, None)


def make_engine(
    name: str,
    request: Request,
    *,
    workers: int | None = None,
    address: str | None = None,
    resources: Mapping[str, float] | None = None,
    device: str = "auto",
) -> Engine:
    """Return the engine of this name. What only another one knows is refused."""
    if name not in ENGINES:
        raise ConfigError(f"There is no engine {name!r}. There are {' and '.join(ENGINES)}.")
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers}: at least one process must run.")
    if name == "ray":
        return RayEngine(address, dict(resources or {}), workers, device=device)
    if address is not None or resources:
        raise ConfigError("--address and --resources are for --engine ray.")
    resolve_device(device)  # said now, once, and not by every run
    gpus = visible_gpus(device)
    seeds, stacks = len(request.plan.seeds), bool(gpus) and workers is None  # on a CPU, side by side is faster
    workers, runs = workers or default_workers(gpus), None
    if request.trials is None:
        runs = len(request.points) * seeds
        workers = max(1, min(workers, runs))
    share = seeds if runs is None else math.ceil(runs / workers)  # of a worker, so that none has nothing to do
    together = min(seeds, share) if stacks else 1
    return LocalEngine(workers, default_threads(workers), gpus if len(gpus) > 1 else (), together=together)


def run(request: Request, engine: Engine, *, progress: bool = True) -> Sweep:
    """Make the runs of a request that are not finished, and write record and figure."""
    results = Results(request.plan, request.rule)
    with (
        request.folder.lock(),
        SweepProgress(progress, METRICS[request.rule.metric].title, request.runs_to_do()) as shown,
        engine,
    ):
        if request.trials is None:
            for _ in _run_points(request.points, engine, results, shown):
                request.folder.write_record(results.record(request.points))
            record = results.record(request.points)
        else:
            record = _run_trials(request, engine, results, shown)
        request.folder.write_record(record)
        if (figure := sweep_figure(record)) is not None:
            for ending in ("png", "svg"):
                save(figure, request.folder.figure(ending))
    return Sweep(request.plan.root, record)


def _run_points(points: Sequence[Point], engine: Engine, results: Results, shown: SweepProgress) -> Iterator[Ended]:
    """Make the runs of these points that are not finished, and yield each as it ends. A failed one stops no other."""
    plan = results.plan
    jobs = plan.jobs(points)
    if getattr(engine, "together", 1) > 1:
        jobs.sort(key=lambda job: Path(job.folder).parent.name)  # seeds of a point follow each other
    epochs = {point.name: point.config.train.epochs for point in points}
    shown.begin({job.folder: epochs[Path(job.folder).parent.name] for job in jobs})
    for ended in engine.run(jobs):
        if ended is None:
            shown.look()
            continue
        if ended.error is not None:
            results.errors[ended.job.folder] = ended.error
        shown.ended(ended, str(Path(ended.job.folder).relative_to(plan.root)), results.value(ended.job.folder))
        yield ended


def _run_trials(request: Request, engine: Engine, results: Results, shown: SweepProgress) -> dict[str, Any]:
    """Draw points round by round, run them, and tell the search what came out. Return the record."""
    assert request.trials is not None
    plan, rule = request.plan, request.rule
    search = Search(plan, rule, request.folder.trials_file, METRICS[rule.metric].higher_is_better)
    about = {"name": "optuna", "trials": request.trials}
    size = max(1, engine.room() // len(plan.seeds))
    scores: list[float | None] = []
    for trials in search.rounds(request.trials, size):
        points = search.points()
        plan.check_folders([trial.point for trial in trials])
        for _ in _run_points(unique(trial.point for trial in trials), engine, results, shown):
            request.folder.write_record(results.record(points, about))
        for trial in trials:
            scores.append(results.score(trial.point))
            search.tell(trial, scores[-1])
        if len(scores) >= HOPELESS and not any(score is not None for score in scores):
            break
    return results.record(search.points(), about)
