"""Run, record and print a table of the paper: `python reproduce/run.py color_mnist [--workers N]`.

A table is data (reproduce/NAME.yaml): rows of presets, columns of settings, seeds, and the paper's values beside them.
Its `splits` say what is shown: SPLIT[.METRIC][@SELECTION], the average of the selected epoch unless it says otherwise.
A row may have seeds of its own, or be taken from the record of another table (`from: [NAME, row]`).
With `curves: [SPLIT, ...]` the record keeps their averages after every epoch; `train.evaluate` must name these splits.
What a `figure` says is read by figures.py. With `explain: true` each run is explained as by `sitar explain`, and a
column may show the share of Grad-CAM's mass in a box, `gradcam.mass_in_box`.
Runs that are finished are kept, stopped ones continue. The record (reproduce/records/NAME.json) is what the table
(docs/results/NAME.md) is made of, so that it can be made again without a GPU: `--table` does only that.
`--rows` makes some rows again and leaves the rest of the record as it is; each run says by which commit it was made.
Where your files are is said with `--set`, such as `--set data.root=DIR`, and is not part of the record.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from sitar.reporting.tables import UPPER_BOUND, UPPER_BOUND_NOTE

HERE = Path(__file__).parent
ENVIRONMENT = ("commit", "python", "versions", "device", "data_checksum")


def load_table(name: str) -> dict[str, Any]:
    return yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))


def record_path(name: str) -> Path:
    return HERE / "records" / f"{name}.json"


def load_record(name: str) -> dict[str, Any]:
    if not record_path(name).exists():
        sys.exit(f"There is no record of {name} yet. `python reproduce/run.py {name}` makes it (use a GPU).")
    return json.loads(record_path(name).read_text(encoding="utf-8"))


def jobs(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Every run of a table; `folder` is its place below the output folder."""
    return [
        {
            "row": row,
            "column": column,
            "preset": what["preset"],
            "overrides": [*what.get("set", []), *settings],
            "seed": seed,
            "folder": "-".join([what["preset"], *what.get("set", []), column, f"seed{seed}"])
            .replace("/", "-")
            .replace(" ", ""),
            "curves": table.get("curves", []),
            "explain": table.get("explain", False),
        }
        for row, what in table["rows"].items()
        if "preset" in what
        for column, settings in table["columns"].items()
        for seed in what.get("seeds", table["seeds"])
    ]


def work(job: dict[str, Any], out: Path, device: str, files: list[str]) -> str:
    """One run, in a process of its own."""
    import torch

    import sitar

    torch.set_num_threads(1)
    sitar.train(
        job["preset"], overrides=[*job["overrides"], *files], seed=job["seed"], out=out / job["folder"],
        device=device, resume=True, progress=False,
    )  # fmt: skip
    if job["explain"]:
        from sitar.analysis.explain.explain import explain_runs
        from sitar.run_folder import RunFolder

        folder = RunFolder(out / job["folder"])
        if not folder.explain_file.is_file():
            list(explain_runs([folder], device=device))
    return job["folder"]


def run_all(todo: list[dict[str, Any]], out: Path, device: str, workers: int, files: list[str]) -> None:
    """Runs of a table, `workers` at a time, seed after seed; what fails is named at the end."""
    failed = []
    todo = sorted(todo, key=lambda job: job["seed"])  # what is stopped halfway has every row, with fewer seeds
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:  # CUDA cannot start after a fork
        futures = {pool.submit(work, job, out, device, files): job for job in todo}
        for done, future in enumerate(as_completed(futures), 1):
            error = future.exception()
            print(f"{done}/{len(futures)} {futures[future]['folder']}", f"FAILED: {error}" if error else "", flush=True)
            failed += [futures[future]["folder"]] if error else []
    if failed:
        sys.exit(f"{len(failed)} runs failed; the same command continues. They are: {', '.join(failed)}")


def collect(name: str, out: Path, todo: list[dict[str, Any]]) -> None:
    """The record: what the run folders say, as far as a table needs it. Rows that were not made now stay."""
    made = [describe(job, out / job["folder"]) for job in todo]
    rows = {run["row"] for run in made}
    kept = [run for run in load_record(name)["runs"] if run["row"] not in rows] if record_path(name).exists() else []
    order = list(load_table(name)["rows"])
    runs = sorted((run for run in [*kept, *made] if run["row"] in order), key=lambda run: order.index(run["row"]))
    text = ",\n".join("    " + json.dumps(run) for run in runs)
    record_path(name).parent.mkdir(exist_ok=True)
    record_path(name).write_text(f'{{\n  "runs": [\n{text}\n  ]\n}}\n', encoding="utf-8")


def describe(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One run as the record holds it."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    run: dict[str, Any] = {key: job[key] for key in ("row", "column", "preset", "overrides", "seed")}
    run |= {key: result[key] for key in ("seconds", "needs_groups", "selection", "selected_epoch")}
    run["splits"] = {
        split: {key: _short(metrics[key]) for key in ("n", "average", "worst_group")}
        | {"intervals": {key: [_short(v) for v in ends] for key, ends in _intervals(metrics).items()}}
        for split, metrics in result["splits"].items()
    }
    if job.get("explain"):
        explained = json.loads((folder / "artifacts" / "explain.json").read_text(encoding="utf-8"))
        run["splits"]["gradcam"] = {key: _short(explained["gradcam"][key]) for key in ("n", "mass_in_box", "box")}
    if chosen := _selections(result, lines):
        run["selections"] = chosen
    if job.get("curves"):
        run["curves"] = _curves(job["curves"], lines, folder)
    if len(lines[-1].get("shortcut_score", [])) in range(1, 33):
        run["shortcut_score"] = [round(v, 3) for v in lines[-1]["shortcut_score"]]
    if "error_set" in lines[-1]:
        run["error_set"] = lines[-1]["error_set"]
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    run["environment"] = {key: environment[key] for key in ENVIRONMENT}
    return run


def _intervals(metrics: dict[str, Any]) -> dict[str, list[float]]:
    found = metrics.get("intervals") or {}
    return {key: found[key] for key in ("average", "worst_group") if found.get(key)}


def _selections(result: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What each criterion would have chosen among the epochs of the last phase, as far as test splits were watched.

    Empty where the run's own criterion does not lead to its result: a fit came after the epochs.
    """
    epochs = [line for line in lines if line["phase"] == lines[-1]["phase"] and "val" in line]
    watched = [split for split in result["splits"] if split in lines[-1] and split != "val"]
    if not epochs or not watched:
        return {}

    def chosen(criterion: str) -> dict[str, Any] | None:
        metric = criterion.removeprefix("val_")
        if criterion != "last" and epochs[-1]["val"][metric] is None:
            return None
        line = epochs[-1] if criterion == "last" else max(epochs, key=lambda line: line["val"][metric])
        values = {s: {key: _short(line[s][key]) for key in ("average", "worst_group")} for s in watched}
        return {"epoch": line["epoch"], **values}

    own = chosen(result["selection"])
    if own is None or any(own[s]["average"] != _short(result["splits"][s]["average"]) for s in watched):
        return {}
    criteria = ("last", "val_average", "val_class_balanced", "val_worst_group")
    return {criterion: found for criterion in criteria if (found := chosen(criterion))}


def _curves(splits: list[str], lines: list[dict[str, Any]], folder: Path) -> dict[str, list[Any]]:
    """The splits' averages after each epoch of the last phase in which they were watched."""
    watched = [line for line in lines if all(split in line for split in splits)]
    if not watched:
        sys.exit(f"{folder} has no curves of {', '.join(splits)}: its train.evaluate does not name them.")
    epochs = [line for line in watched if line["phase"] == watched[-1]["phase"]]
    averages = {split: [_short(line[split]["average"]) for line in epochs] for split in splits}
    return {"epoch": [line["epoch"] for line in epochs], **averages}


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def value_of(run: dict[str, Any], what: str) -> float:
    """What a column shows of a run, in percent: SPLIT[.METRIC][@SELECTION]."""
    split, metric, selection = re.fullmatch(r"(\w+)(?:\.(\w+))?(?:@(\w+))?", what).groups()  # type: ignore[union-attr]
    found = run["splits"][split]
    if selection is not None:
        found = run.get("selections", {}).get(selection, {}).get(split, found)
    return 100 * found[metric or "average"]


def runs_of(row: str, table: dict[str, Any], record: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a row: from this table's record, or from another's where the row says so."""
    what = table["rows"][row]
    if "from" not in what:
        return [run for run in record["runs"] if run["row"] == row]
    other, name = what["from"]
    seeds = what.get("seeds", table["seeds"])
    return [run for run in load_record(other)["runs"] if run["row"] == name and run["seed"] in seeds]


def render(name: str) -> str:
    """The table as Markdown, from the record alone."""
    table, record = load_table(name), load_record(name)
    columns, splits = list(table["columns"]), table["splits"]
    head = [f"{column}, {label}" for column in columns for label in splits]
    lines = [f"| | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    worst: list[str] = []
    marked = borrowed = False
    missing = [row for row in table["rows"] if not runs_of(row, table, record)]
    for row, what in table["rows"].items():
        runs = runs_of(row, table, record)
        if not runs:
            continue
        cells, low = [], []
        for column in columns:
            for split in splits.values():
                values = [value_of(run, split) for run in runs if run["column"] == column]
                cells.append(_mean_and_deviation(values))
                low.append(f"{min(values):.1f}")
        bound = any(run.get("needs_groups") for run in runs)
        label = f"{row} {UPPER_BOUND}" if bound else row
        marked, borrowed = marked or bound, borrowed or "from" in what
        lines.append(f"| {label} | {' | '.join(cells)} |")
        worst.append(f"| {label} | {' | '.join(low)} |")
    for row, values in table["paper"].items():
        lines.append(f"| *paper, {row}* | " + " | ".join(f"*{value}*" for pair in values for value in pair) + " |")
    seeds = ", ".join(map(str, table["seeds"]))
    made = [run["environment"] for run in record["runs"]]
    where = "; ".join(
        dict.fromkeys(f"{e['device']}, torch {e['versions']['torch']}, commit {str(e['commit'])[:12]}" for e in made)
    )
    single = " (one seed where there is no ±)" if any("seeds" in what for what in table["rows"].values()) else ""
    swept = dict.fromkeys(s.partition("=")[0] for settings in table["columns"].values() for s in settings)
    swept = [key for key in swept if key.startswith("method.")]
    settings = f"columns differ in {', '.join(swept)}" if swept else "one setting for all columns"
    note = f" {UPPER_BOUND_NOTE}" if marked else ""
    note += f" Not yet run: {', '.join(missing)}." if missing else ""
    fitted = [row for row in table["rows"] if any("selections" not in run for run in runs_of(row, table, record))]
    if fitted and any("@" in split for split in splits.values()):
        note += f" No epoch is chosen for {', '.join(fitted)}: the run's end stands everywhere."
    if borrowed:
        others = sorted({what["from"][0] for what in table["rows"].values() if "from" in what})
        rows = ", ".join(row for row, what in table["rows"].items() if "from" in what)
        note += f" From the record of {', '.join(f'[{other}]({other}.md)' for other in others)}: {rows}."
    return "\n".join(
        [
            f"# {table['title']}",
            "",
            (
                f"Mean ± standard deviation over seeds {seeds}{single}; {table['epoch']}; {settings}. "
                f"Made by `python reproduce/run.py {name}` from `reproduce/records/{name}.json` ({where}).{note}"
            ),
            "",
            *lines,
            "",
            "The lowest of the seeds:",
            "",
            *lines[:2],
            *worst,
            "",
            *_seed_by_seed(table, record),
            *_bootstrap(table, record),
            *([table["notes"].rstrip(), ""] if "notes" in table else []),
        ]
    )


def _mean_and_deviation(values: list[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def _by_seed(
    table: dict[str, Any], rows: dict[str, list[dict[str, Any]]], cell: Callable[[dict[str, Any]], str]
) -> list[str]:
    """A table with a line a seed."""
    lines = [f"| | seed | {' | '.join(table['columns'])} |", "|---|---|" + "---|" * len(table["columns"])]
    for row, runs in rows.items():
        for seed in sorted({run["seed"] for run in runs}):
            found = {run["column"]: cell(run) for run in runs if run["seed"] == seed}
            lines.append(f"| {row} | {seed} | {' | '.join(found[column] for column in table['columns'])} |")
    return [*lines, ""]


def _seed_by_seed(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Each seed's last split with its two largest shortcut scores: two high ones are a split shortcut."""
    scored = {row: [run for run in runs_of(row, table, record) if "shortcut_score" in run] for row in table["rows"]}
    if not any(scored.values()):
        return []
    label, split = list(table["splits"].items())[-1]

    def cell(run: dict[str, Any]) -> str:
        first, second = sorted(run["shortcut_score"], reverse=True)[:2]
        return f"{value_of(run, split):.1f} ({first:.2f}, {second:.2f})"

    return [
        f"Seed by seed, {label}, in brackets the two largest shortcut scores of the last epoch. Two high",
        "scores mean that training has spread the shortcut over two axes.",
        "",
        *_by_seed(table, scored, cell),
    ]


def _bootstrap(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Each seed's bootstrap interval of what the table's `intervals` names."""
    if "intervals" not in table:
        return []
    split, metric = table["intervals"].split(".")

    def cell(run: dict[str, Any]) -> str:
        low, high = run["splits"][split]["intervals"][metric]
        return f"{100 * run['splits'][split][metric]:.1f} [{100 * low:.1f}, {100 * high:.1f}]"

    return [
        f"Seed by seed, {metric.replace('_', ' ')} of {split} with its bootstrap interval of 95 %, in the epoch that",
        "the run selects:",
        "",
        *_by_seed(table, {row: runs_of(row, table, record) for row in table["rows"]}, cell),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", help="a table: the name of a .yaml file beside this one")
    parser.add_argument("--workers", type=int, default=1, help="processes that run side by side")
    parser.add_argument("--out", type=Path, help="folder for the runs (default: runs/reproduce/NAME)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="files", action="append", default=[], help="for all runs: where files are")
    parser.add_argument("--rows", nargs="+", help="only these rows (default: all)")
    parser.add_argument("--table", action="store_true", help="only make the table again from the record")
    options = parser.parse_args()
    out = options.out or Path("runs", "reproduce", options.name)
    if not options.table:
        todo = [job for job in jobs(load_table(options.name)) if options.rows is None or job["row"] in options.rows]
        run_all(todo, out, options.device, options.workers, options.files)
        collect(options.name, out, todo)
    page = HERE.parent / "docs" / "results" / f"{options.name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(options.name), encoding="utf-8")
    print(f"Wrote {page}")


if __name__ == "__main__":
    main()
