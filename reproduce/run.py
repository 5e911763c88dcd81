"""Run, record and print one table of the paper: `python reproduce/run.py color_mnist [--workers N]`.

The file reproduce/NAME.yaml describes the table: rows of presets, columns of settings, seeds, and the paper's values.

- `splits` says what a column shows: SPLIT[.METRIC][@SELECTION]. Without a metric it is the average, and without a
  selection it is the epoch that the run selects.
- A row may have its own `seeds`. A row may also come from the record of another table (`from: [NAME, row]`).
- With `curves: [SPLIT, ...]` the record keeps the averages of these splits after every epoch. `train.evaluate` must
  name the splits.
- A run of `auto` has its candidates in the place of a selection: @erm, @control, @sitar and, for images, @bank.
  `train.evaluate` must name the split.
- `figure` is read by figures.py.
- With `explain: true` every run is explained, as `sitar explain` does. A column may then show the share of the Grad-CAM
  mass that lies in a box (`gradcam.mass_in_box`).
- `classes: N` says how many classes there are, where the data has groups. The page then has a row of what a head has
  that knows nothing: a fair coin over the classes.
- `transposed: true` is for a table with many columns. Its page has a line for each column, and a table for each split.
  `left_out` names columns that do not count in the mean over columns: settings were chosen on them.
- `no_images: true` says that we do not have the images. The page says so in our cells until there is a record.
- Numbers in `notes` are values of records, written as {{ VALUE }} (values.py).

Every run is recorded when it ends. A stopped table continues with the same command. The record
reproduce/records/NAME.json holds what the runs measured. The page docs/results/NAME.md is made from the record alone.
`--table` makes only the page and needs no GPU. Cells that the record does not have are run first.
`--rows`, `--columns` and `--seeds` run a part of the table, and `--missing` what the record does not have with the
settings of today. The rest of the record is kept. `--within SECONDS` starts no run after this time.
`--together N` trains up to N seeds of a cell as one model where this is faster (docs/sweep.md).
`--set` says where your files are, for example `--set data.root=DIR`. It is not part of the table.
`--compare` leaves record and page as they are. It makes the runs that are asked for, and prints each of their values
beside that of the record, with the difference (differences.py). Without it, the values of the checkout are replaced.
Several tables may be named. Their runs then share the workers, the first table first, and no worker waits for the last
run of a table.

`python reproduce/run.py --check` compares every number in README and docs with the records (check.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import check
import differences
import records
from pages import render
from records import changed, decisive, is_said, jobs, load_record, load_table, record_path, runs_of, value_of

from sitar.config import run_config
from sitar.data.published_counts import compare_counts
from sitar.files import write_atomic
from sitar.given import kinds_of
from sitar.registry import DATASETS, unknown
from sitar.reporting.tables.table import HEADLINE, KNOWLEDGE
from sitar.run_folder import Run, RunFolder
from sitar.sweeps.engines.job import Job, perform
from sitar.sweeps.engines.local import LocalEngine

__all__ = ["jobs", "load_record", "load_table", "record_path", "render", "runs_of", "value_of"]  # for scripts beside

ENVIRONMENT = ("commit", "python", "versions", "device", "data_checksum")


def ordered(name: str, todo: list[dict[str, Any]], missing: bool = False) -> list[dict[str, Any]]:
    """Put the cells first that the record does not have with today's settings, then go seed by seed.

    If it is stopped halfway, every cell has some seeds. With `missing`, runs that the record has are left out.
    """
    record = records.record_so_far(name)
    recorded = [run for run in record["runs"] if not changed(run, record.get("settings", {}))]
    cells = {(run["row"], run["column"]) for run in recorded if is_said(run, todo)}
    todo = [job for job in todo if not (missing and is_said(job, recorded))]
    return sorted(todo, key=lambda job: ((job["row"], job["column"]) in cells, job["seed"]))


def run_of(job: dict[str, Any], out: Path, device: str, files: list[str]) -> Job:
    """Return the run of a table as a job for an engine."""
    overrides = (*job["overrides"], *files)
    return Job(str(out / job["folder"]), job["preset"], job["seed"], overrides, device, explain=job["explain"])


def work(job: dict[str, Any], out: Path, device: str, files: list[str]) -> None:
    """Do one run in this process."""
    perform(run_of(job, out, device, files))


def run_all(
    todo: list[dict[str, Any]],
    out: Path,
    device: str,
    workers: int,
    files: list[str],
    finished: Callable[[dict[str, Any]], None],
    within: float | None = None,
    together: int = 1,
) -> list[str]:
    """Do runs in this order, `workers` at a time, and call `finished` after each. Return the folders that failed.

    Up to `together` runs that follow each other and differ in the seed alone are trained as one model.
    """
    start, waiting, running, failed = time.monotonic(), list(todo), {}, []

    def in_time() -> Iterator[Job]:
        while waiting and (within is None or time.monotonic() - start < within):
            job = waiting.pop(0)
            run = run_of(job, out, device, files)
            running[run.folder] = job
            yield run

    with LocalEngine(workers, threads=1, together=together) as engine:
        for ended in engine.run(in_time()):
            if ended is None:
                continue
            job, error = running.pop(ended.job.folder), ended.error
            done = len(todo) - len(waiting) - len(running)
            print(f"{done}/{len(todo)} {job['folder']}", f"FAILED: {error}" if error else "", flush=True)
            if error:
                failed.append(job["folder"])
            else:
                finished(job)
    if waiting:
        print(f"{len(waiting)} runs were not started in time. The same command continues.")
    return failed


def collect(name: str, out: Path, todo: list[dict[str, Any]]) -> None:
    """Add finished runs to the record: the part of their folders that a table needs.

    They replace the runs of the same row, column and seed. Runs that the table no longer asks for leave the record.
    """
    table, record = load_table(name), records.record_so_far(name)
    made = [describe(job, out / job["folder"]) for job in todo]
    settings = record.get("settings", {}) | {
        run["settings"]: decisive(RunFolder(out / job["folder"]).read_config())
        for run, job in zip(made, todo, strict=True)
    }
    wanted = jobs(table)
    kept = [run for run in record["runs"] if is_said(run, wanted) and not is_said(run, made)]
    place = {(job["row"], job["column"], job["seed"]): i for i, job in enumerate(wanted)}
    runs = sorted([*kept, *made], key=lambda run: place[run["row"], run["column"], run["seed"]])
    records.write_record(name, runs, settings)


def digest(settings: dict[str, Any]) -> str:
    """Name settings by a short digest, under which the record holds them."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def describe(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Describe one run as the record holds it."""
    finished = Run.read(RunFolder(folder))
    result, lines = finished.result, finished.metrics
    run: dict[str, Any] = {key: job[key] for key in ("row", "column", "preset", "overrides", "seed")}
    run |= {key: result[key] for key in ("seconds", "needs_groups", "selection", "selected_epoch")}
    run |= {kind.key: kind.of(result) for kind in kinds_of(result)}
    run["splits"] = {
        split: {key: _short(metrics[key]) for key in ("n", *HEADLINE)}
        | {key: _short(metrics[key]) for key in KNOWLEDGE if metrics.get(key) is not None}
        | {"intervals": {key: [_short(v) for v in ends] for key, ends in _intervals(metrics).items()}}
        for split, metrics in result["splits"].items()
    }
    if job.get("explain"):
        gradcam = finished.folder.part("gradcam")[0]["gradcam"]
        run["splits"]["gradcam"] = {key: _short(gradcam[key]) for key in ("n", "mass_in_box", "box")}
    rule = finished.config["train"]["selection"]
    if chosen := _selections(result, lines) | _heads(result) | _candidates(result, lines, rule):
        run["selections"] = chosen
    for said in ("auto", "gate"):
        if said in result:
            run[said] = {key: _short(value) for key, value in result[said].items() if key != "words"}
    if job.get("curves"):
        run["curves"] = _curves(job["curves"], lines, folder)
    if len(lines[-1].get("shortcut_score", [])) in range(1, 33):
        run["shortcut_score"] = [round(v, 3) for v in lines[-1]["shortcut_score"]]
    if "error_set" in lines[-1]:
        run["error_set"] = lines[-1]["error_set"]
    if (counts := _published_counts(finished.config)) is not None:
        run["published_counts"] = counts
    run["settings"] = digest(decisive(finished.config))
    run["environment"] = {key: finished.environment[key] for key in ENVIRONMENT}
    return run


def _published_counts(config: dict[str, Any]) -> dict[str, Any] | None:
    """Say whether the files of a run are as many as was published. None: nothing is published."""
    settings = run_config(config).data
    dataset = DATASETS.get(settings.name)
    if (published := dataset.published(settings)) is None:
        return None
    comparison = compare_counts(dataset.samples(settings), published)
    return {"agree": comparison.agrees, "totals": comparison.totals()}


def _intervals(metrics: dict[str, Any]) -> dict[str, list[float]]:
    found = metrics.get("intervals") or {}
    return {key: found[key] for key in (*HEADLINE, *KNOWLEDGE) if found.get(key)}


def _selections(result: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Say which epoch of the last phase each criterion would have chosen, for the test splits that were evaluated.

    The answer is empty if the run's own criterion does not lead to its result, because a fit came after the epochs.
    """
    epochs = [line for line in lines if line["phase"] == lines[-1]["phase"] and "val" in line]
    watched = [split for split in result["splits"] if split in lines[-1] and split != "val"]
    if not epochs or not watched:
        return {}
    own = _epoch_by(result["selection"], epochs, watched)
    if own is None or any(own[s]["average"] != _short(result["splits"][s]["average"]) for s in watched):
        return {}
    criteria = ("last", "val_average", "val_class_balanced", "val_worst_group", "val_core_auc")
    return {criterion: found for criterion in criteria if (found := _epoch_by(criterion, epochs, watched))}


def _epoch_by(criterion: str, epochs: list[dict[str, Any]], watched: list[str]) -> dict[str, Any] | None:
    """Return the epoch that a criterion chooses, with its metrics on these splits."""
    metric = criterion.removeprefix("val_")
    if criterion != "last" and epochs[-1]["val"].get(metric) is None:
        return None
    line = epochs[-1] if criterion == "last" else max(epochs, key=lambda line: line["val"][metric])
    values = {s: {key: _short(line[s][key]) for key in (*HEADLINE, *KNOWLEDGE) if key in line[s]} for s in watched}
    return {"epoch": line["epoch"], **values}


def _candidates(result: dict[str, Any], lines: list[dict[str, Any]], rule: str) -> dict[str, Any]:
    """Say what each candidate of `auto` has, at the epoch that its own phase keeps: @erm, @control, @sitar, @bank."""
    if "auto" not in result:
        return {}
    watched = [split for split in result["splits"] if split in lines[-1] and split != "val"]
    phases = dict.fromkeys(line["phase"] for line in lines)
    of = {phase: [line for line in lines if line["phase"] == phase and "val" in line] for phase in phases}
    rules = {phase: "last" if phase in ("sitar", "bank") else rule for phase in of}  # as its page says
    return {phase: _epoch_by(rules[phase], epochs, watched) for phase, epochs in of.items()}


def _heads(result: dict[str, Any]) -> dict[str, Any]:
    """Say what the head has that a few answers would choose, and the head that is best on each split (an oracle)."""
    if (heads := result.get("heads")) is None:
        return {}
    short = {
        split: [{key: _short(v) for key, v in head.items()} for head in of] for split, of in heads["splits"].items()
    }
    found: dict[str, Any] = {
        "best_head": {split: max(of, key=lambda head: head["average"]) for split, of in short.items()}
    }
    if "chosen" in heads:
        found["answers"] = {"head": heads["chosen"]} | {split: of[heads["chosen"]] for split, of in short.items()}
    return found


def _curves(splits: list[str], lines: list[dict[str, Any]], folder: Path) -> dict[str, list[Any]]:
    """Collect the averages of the splits after each epoch of the last phase that evaluated them."""
    watched = [line for line in lines if all(split in line for split in splits)]
    if not watched:
        sys.exit(f"{folder} has no curves of {', '.join(splits)}: its train.evaluate does not name them.")
    epochs = [line for line in watched if line["phase"] == watched[-1]["phase"]]
    averages = {split: [_short(line[split]["average"]) for line in epochs] for split in splits}
    return {"epoch": [line["epoch"] for line in epochs], **averages}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def write_page(name: str) -> None:
    page = records.page_path(name)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(page, render(name).encode())
    print(f"Wrote {page}")


def chosen(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """List the runs of a table that the options ask for. Refuse rows, columns and seeds that it does not have."""
    todo = [{**job, "table": name} for job in jobs(load_table(name))]
    for key, wanted in (("row", options.rows), ("column", options.columns), ("seed", options.seeds)):
        known = list(dict.fromkeys(job[key] for job in todo))
        if unknown := [one for one in wanted or [] if one not in known]:
            sys.exit(f"{name} runs no {key} {unknown[0]!r}; it runs {', '.join(map(repr, known))}.")
        todo = [job for job in todo if wanted is None or job[key] in wanted]
    return ordered(name, todo, options.missing)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a table: the name of a .yaml file beside this one")
    parser.add_argument("--workers", type=int, default=1, help="number of processes that run at the same time")
    parser.add_argument(
        "--out", type=Path, help="folder for the runs, with a folder for each table (default: runs/reproduce)"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="files", action="append", default=[], help="for all runs: where the files are")
    parser.add_argument("--rows", nargs="+", help="only these rows (default: all)")
    parser.add_argument("--columns", nargs="+", help="only these columns (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, help="only these seeds (default: all)")
    parser.add_argument("--missing", action="store_true", help="only runs that the record does not have")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="start no run after this time")
    parser.add_argument(
        "--together", type=int, default=1, metavar="N", help="train up to N seeds of a cell as one model (GPU)"
    )
    parser.add_argument(
        "--compare", action="store_true", help="print how the runs differ from the record, and write no record or page"
    )
    parser.add_argument("--table", action="store_true", help="only make the page again from the record")
    parser.add_argument("--check", action="store_true", help="compare the numbers in README and docs with the records")
    parser.add_argument("--write", action="store_true", help="with --check: write the numbers that differ again")
    options = parser.parse_args(words)
    if options.check:
        sys.exit(check.main(write=options.write))
    if not options.names:
        parser.error(f"name a table ({', '.join(records.table_names())}) or --check")
    if options.compare and (options.missing or options.table):
        parser.error("--compare needs runs that the record has: leave out --missing and --table")
    for name in options.names:
        if name not in records.table_names():
            sys.exit(str(unknown("table", name, records.table_names())))
    try:
        failed = [] if options.table else run_tables(options)
        for name in [] if options.compare else options.names:
            write_page(name)
    except OSError as error:  # such as a full disk
        sys.exit(f"{error}. What is finished is kept, and the same command continues.")
    if failed:
        sys.exit(f"{len(failed)} runs failed; the same command continues. They are: {', '.join(failed)}")


def run_tables(options: argparse.Namespace) -> list[str]:
    """Do the runs of all tables. Record each when it ends, or compare them. Return the folders that failed."""
    out = options.out or Path("runs", "reproduce")
    todo = [
        {**job, "folder": str(Path(name, job["folder"]))} for name in options.names for job in chosen(name, options)
    ]
    if options.together > 1:  # seeds of a cell follow each other
        cells = list(dict.fromkeys(_cell(job) for job in todo))
        todo.sort(key=lambda job: cells.index(_cell(job)))
    made: dict[str, list[dict[str, Any]]] = {}

    def finished(job: dict[str, Any]) -> None:
        if options.compare:
            made.setdefault(job["table"], []).append(describe(job, out / job["folder"]))
        else:
            collect(job["table"], out, [job])

    failed = run_all(
        todo, out, options.device, options.workers, options.files, finished, options.within, options.together
    )
    if options.compare:
        differences.show(made)
    return failed


def _cell(job: dict[str, Any]) -> tuple[str, str, str]:
    return job["table"], job["row"], job["column"]


if __name__ == "__main__":
    main()
