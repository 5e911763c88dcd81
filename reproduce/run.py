"""Run, record and print one table of the paper: `python reproduce/run.py color_mnist [--workers N]`.

The file reproduce/NAME.yaml describes the table: rows of presets, columns of settings, seeds, and the paper's values.

- `splits` says what a column shows: SPLIT[.METRIC][@SELECTION]. Without a metric it is the average, and without a
  selection it is the epoch that the run selects.
- A row may have its own `seeds`. A row may also come from the record of another table (`from: [NAME, row]`).
- With `curves: [SPLIT, ...]` the record keeps the averages of these splits after every epoch. `train.evaluate` must
  name the splits.
- `figure` is read by figures.py.
- With `explain: true` every run is explained, as `sitar explain` does. A column may then show the share of the Grad-CAM
  mass that lies in a box (`gradcam.mass_in_box`).

Finished runs are kept, and stopped runs continue. The record reproduce/records/NAME.json holds what the runs measured.
The page docs/results/NAME.md is made from the record alone. `--table` makes only the page and needs no GPU.
`--rows` runs some rows again and keeps the rest of the record. Each run in the record names the commit that made it.
`--set` says where your files are, for example `--set data.root=DIR`. It is not part of the record.
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

from sitar.reporting.tables.table import UPPER_BOUND, UPPER_BOUND_NOTE
from sitar.run_folder import Run, RunFolder

HERE = Path(__file__).parent
ENVIRONMENT = ("commit", "python", "versions", "device", "data_checksum")
ABBREVIATIONS = {
    "ID": "[ID](../glossary.md#id-and-ood) means in distribution.",
    "OOD": "[OOD](../glossary.md#id-and-ood) means out of distribution.",
}


def load_table(name: str) -> dict[str, Any]:
    return yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))


def record_path(name: str) -> Path:
    return HERE / "records" / f"{name}.json"


def load_record(name: str) -> dict[str, Any]:
    if not record_path(name).exists():
        sys.exit(f"There is no record of {name} yet. `python reproduce/run.py {name}` makes it (use a GPU).")
    return json.loads(record_path(name).read_text(encoding="utf-8"))


def jobs(table: dict[str, Any]) -> list[dict[str, Any]]:
    """List every run of a table. `folder` is the place of the run below the output folder."""
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
    """Do one run, in its own process."""
    import torch

    import sitar

    torch.set_num_threads(1)
    sitar.train(
        job["preset"], overrides=[*job["overrides"], *files], seed=job["seed"], out=out / job["folder"],
        device=device, resume=True, progress=False,
    )  # fmt: skip
    if job["explain"]:
        from sitar.analysis.explain.explain import explain_runs

        folder = RunFolder(out / job["folder"])
        if not folder.is_explained:
            list(explain_runs([folder], device=device))
    return job["folder"]


def run_all(todo: list[dict[str, Any]], out: Path, device: str, workers: int, files: list[str]) -> None:
    """Do the runs of a table, `workers` at a time, seed after seed. The runs that fail are named at the end."""
    failed = []
    todo = sorted(todo, key=lambda job: job["seed"])  # if it is stopped halfway, every row has some seeds
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:  # CUDA cannot start after a fork
        futures = {pool.submit(work, job, out, device, files): job for job in todo}
        for done, future in enumerate(as_completed(futures), 1):
            error = future.exception()
            print(f"{done}/{len(futures)} {futures[future]['folder']}", f"FAILED: {error}" if error else "", flush=True)
            failed += [futures[future]["folder"]] if error else []
    if failed:
        sys.exit(f"{len(failed)} runs failed; the same command continues. They are: {', '.join(failed)}")


def collect(name: str, out: Path, todo: list[dict[str, Any]]) -> None:
    """Write the record: the part of the run folders that a table needs. Rows that were not run now stay."""
    made = [describe(job, out / job["folder"]) for job in todo]
    rows = {run["row"] for run in made}
    kept = [run for run in load_record(name)["runs"] if run["row"] not in rows] if record_path(name).exists() else []
    order = list(load_table(name)["rows"])
    runs = sorted((run for run in [*kept, *made] if run["row"] in order), key=lambda run: order.index(run["row"]))
    text = ",\n".join("    " + json.dumps(run) for run in runs)
    record_path(name).parent.mkdir(exist_ok=True)
    record_path(name).write_text(f'{{\n  "runs": [\n{text}\n  ]\n}}\n', encoding="utf-8")


def describe(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Describe one run as the record holds it."""
    finished = Run.read(RunFolder(folder))
    result, lines = finished.result, finished.metrics
    run: dict[str, Any] = {key: job[key] for key in ("row", "column", "preset", "overrides", "seed")}
    run |= {key: result[key] for key in ("seconds", "needs_groups", "selection", "selected_epoch")}
    run["splits"] = {
        split: {key: _short(metrics[key]) for key in ("n", "average", "worst_group")}
        | {"intervals": {key: [_short(v) for v in ends] for key, ends in _intervals(metrics).items()}}
        for split, metrics in result["splits"].items()
    }
    if job.get("explain"):
        gradcam = finished.folder.part("gradcam")[0]["gradcam"]
        run["splits"]["gradcam"] = {key: _short(gradcam[key]) for key in ("n", "mass_in_box", "box")}
    if chosen := _selections(result, lines):
        run["selections"] = chosen
    if job.get("curves"):
        run["curves"] = _curves(job["curves"], lines, folder)
    if len(lines[-1].get("shortcut_score", [])) in range(1, 33):
        run["shortcut_score"] = [round(v, 3) for v in lines[-1]["shortcut_score"]]
    if "error_set" in lines[-1]:
        run["error_set"] = lines[-1]["error_set"]
    run["environment"] = {key: finished.environment[key] for key in ENVIRONMENT}
    return run


def _intervals(metrics: dict[str, Any]) -> dict[str, list[float]]:
    found = metrics.get("intervals") or {}
    return {key: found[key] for key in ("average", "worst_group") if found.get(key)}


def _selections(result: dict[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Say which epoch of the last phase each criterion would have chosen, for the test splits that were evaluated.

    The answer is empty if the run's own criterion does not lead to its result, because a fit came after the epochs.
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
    """Collect the averages of the splits after each epoch of the last phase that evaluated them."""
    watched = [line for line in lines if all(split in line for split in splits)]
    if not watched:
        sys.exit(f"{folder} has no curves of {', '.join(splits)}: its train.evaluate does not name them.")
    epochs = [line for line in watched if line["phase"] == watched[-1]["phase"]]
    averages = {split: [_short(line[split]["average"]) for line in epochs] for split in splits}
    return {"epoch": [line["epoch"] for line in epochs], **averages}


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def value_of(run: dict[str, Any], what: str) -> float:
    """Read what a column shows of a run, in percent: SPLIT[.METRIC][@SELECTION]."""
    split, metric, selection = re.fullmatch(r"(\w+)(?:\.(\w+))?(?:@(\w+))?", what).groups()  # type: ignore[union-attr]
    found = run["splits"][split]
    if selection is not None:
        found = run.get("selections", {}).get(selection, {}).get(split, found)
    return 100 * found[metric or "average"]


def runs_of(row: str, table: dict[str, Any], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Find the runs of a row, in the record of this table or in the record that the row names."""
    what = table["rows"][row]
    if "from" not in what:
        return [run for run in record["runs"] if run["row"] == row]
    other, name = what["from"]
    seeds = what.get("seeds", table["seeds"])
    return [run for run in load_record(other)["runs"] if run["row"] == name and run["seed"] in seeds]


def render(name: str) -> str:
    """Write the table as Markdown, from the record alone."""
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
    single = " A cell without ± has one seed." if any("seeds" in what for what in table["rows"].values()) else ""
    swept = dict.fromkeys(s.partition("=")[0] for settings in table["columns"].values() for s in settings)
    swept = [key for key in swept if key.startswith("method.")]
    settings = f"The columns differ in {', '.join(swept)}." if swept else "All columns have the same method settings."
    words = "".join(f" {meaning}" for label, meaning in ABBREVIATIONS.items() if label in splits)
    note = f" {UPPER_BOUND_NOTE}" if marked else ""
    note += f" These rows have not been run yet: {_quoted(missing)}." if missing else ""
    fitted = [row for row in table["rows"] if any("selections" not in run for run in runs_of(row, table, record))]
    if fitted and any("@" in split for split in splits.values()):
        note += f" No epoch is chosen in these rows, so all columns show the end of the run: {_quoted(fitted)}."
    if borrowed:
        others = sorted({what["from"][0] for what in table["rows"].values() if "from" in what})
        rows = _quoted([row for row, what in table["rows"].items() if "from" in what])
        links = ", ".join(f"[{other}]({other}.md)" for other in others)
        note += f" These rows come from the record of {links}: {rows}."
    return "\n".join(
        [
            f"# {table['title']}",
            "",
            f"Each cell is the mean ± the standard deviation over the seeds {seeds}.{single} {table['epoch']}",
            f"{settings}{words}",
            "",
            f"`python reproduce/run.py {name}` makes this page from `reproduce/records/{name}.json`.",
            f"The runs were made with: {where}.{note}",
            "",
            *lines,
            "",
            "The next table shows the lowest value over the seeds.",
            "",
            *lines[:2],
            *worst,
            "",
            *_seed_by_seed(table, record),
            *_bootstrap(table, record),
            *([table["notes"].rstrip(), ""] if "notes" in table else []),
        ]
    )


def _quoted(rows: list[str]) -> str:
    """Quote the names of rows, because some of them hold a comma."""
    return ", ".join(f'"{row}"' for row in rows)


def _mean_and_deviation(values: list[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def _by_seed(
    table: dict[str, Any], rows: dict[str, list[dict[str, Any]]], cell: Callable[[dict[str, Any]], str]
) -> list[str]:
    """Write a table with one line for each seed."""
    lines = [f"| | seed | {' | '.join(table['columns'])} |", "|---|---|" + "---|" * len(table["columns"])]
    for row, runs in rows.items():
        for seed in sorted({run["seed"] for run in runs}):
            found = {run["column"]: cell(run) for run in runs if run["seed"] == seed}
            lines.append(f"| {row} | {seed} | {' | '.join(found[column] for column in table['columns'])} |")
    return [*lines, ""]


def _seed_by_seed(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Show the last column of the table for each seed, with the two largest shortcut scores of the seed."""
    scored = {row: [run for run in runs_of(row, table, record) if "shortcut_score" in run] for row in table["rows"]}
    if not any(scored.values()):
        return []
    label, split = list(table["splits"].items())[-1]

    def cell(run: dict[str, Any]) -> str:
        first, second = sorted(run["shortcut_score"], reverse=True)[:2]
        return f"{value_of(run, split):.1f} ({first:.2f}, {second:.2f})"

    return [
        f'The next table shows the column "{label}" for every seed. The brackets hold the two largest',
        "[shortcut scores](../glossary.md#shortcut-score) of the last epoch. Two high scores mean that training has",
        "spread the [shortcut](../glossary.md#shortcut) over two [axes](../glossary.md#axis).",
        "",
        *_by_seed(table, scored, cell),
    ]


def _bootstrap(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Show the bootstrap interval of each seed, for the metric that `intervals` names."""
    if "intervals" not in table:
        return []
    split, metric = table["intervals"].split(".")

    def cell(run: dict[str, Any]) -> str:
        low, high = run["splits"][split]["intervals"][metric]
        return f"{100 * run['splits'][split][metric]:.1f} [{100 * low:.1f}, {100 * high:.1f}]"

    return [
        f"The next table shows the {metric.replace('_', ' ')} of the split `{split}` for every seed.",
        "Each value is taken in the epoch that the run selects. The brackets hold the 95 % bootstrap interval.",
        "",
        *_by_seed(table, {row: runs_of(row, table, record) for row in table["rows"]}, cell),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", help="a table: the name of a .yaml file beside this one")
    parser.add_argument("--workers", type=int, default=1, help="number of processes that run at the same time")
    parser.add_argument("--out", type=Path, help="folder for the runs (default: runs/reproduce/NAME)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="files", action="append", default=[], help="for all runs: where the files are")
    parser.add_argument("--rows", nargs="+", help="only these rows (default: all)")
    parser.add_argument("--table", action="store_true", help="only make the page again from the record")
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
