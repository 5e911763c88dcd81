"""Run, record and print a table of the paper: `python reproduce/run.py color_mnist [--workers N]`.

A table is data (reproduce/NAME.yaml): rows of presets, columns of settings, seeds, and the paper's values beside them.
A row may have seeds of its own, or be taken from the record of another table (`from: [NAME, row]`).
`--set data.root=DIR` says where files are on this machine, for every run; it is not part of the record.
Runs that are finished are kept, stopped ones continue. The record (reproduce/records/NAME.json) is what the table
(docs/results/NAME.md) is made of, so that it can be made again without a GPU: `--table` does only that.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from sitar.reporting.tables import UPPER_BOUND, UPPER_BOUND_NOTE

HERE = Path(__file__).parent


def load_table(name: str) -> dict[str, Any]:
    return yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))


def record_path(name: str) -> Path:
    return HERE / "records" / f"{name}.json"


def load_record(name: str) -> dict[str, Any]:
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
        }
        for row, what in table["rows"].items()
        if "preset" in what
        for column, settings in table["columns"].items()
        for seed in what.get("seeds", table["seeds"])
    ]


def work(job: dict[str, Any], out: Path, device: str, here: list[str]) -> str:
    """One run, in a process of its own. `here` are settings of this machine."""
    import torch

    import sitar

    torch.set_num_threads(1)
    sitar.train(
        job["preset"], overrides=[*job["overrides"], *here], seed=job["seed"], out=out / job["folder"],
        device=device, resume=True, progress=False,
    )  # fmt: skip
    return job["folder"]


def run_all(name: str, out: Path, device: str, workers: int, here: list[str]) -> None:
    """Every run of a table, `workers` at a time; what fails is named at the end."""
    failed = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:  # CUDA cannot start after a fork
        futures = {pool.submit(work, job, out, device, here): job for job in jobs(load_table(name))}
        for done, future in enumerate(as_completed(futures), 1):
            error = future.exception()
            print(f"{done}/{len(futures)} {futures[future]['folder']}", f"FAILED: {error}" if error else "", flush=True)
            failed += [futures[future]["folder"]] if error else []
    if failed:
        sys.exit(f"{len(failed)} runs failed; the same command continues. They are: {', '.join(failed)}")


def collect(name: str, out: Path) -> None:
    """The record: what the run folders say, as far as a table needs it."""
    runs, environments = [], []
    for job in jobs(load_table(name)):
        folder = out / job["folder"]
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        last = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        splits = {
            split: {key: _short(metrics[key]) for key in ("n", "average", "worst_group")}
            for split, metrics in result["splits"].items()
        }
        run: dict[str, Any] = {key: job[key] for key in ("row", "column", "preset", "overrides", "seed")}
        run |= {"seconds": result["seconds"], "splits": splits, "needs_groups": result["needs_groups"]}
        if "shortcut_score" in last:
            run["shortcut_score"] = [round(v, 3) for v in last["shortcut_score"]]
        if "error_set" in last:
            run["error_set"] = last["error_set"]
        runs.append(run)
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        keys = ("commit", "python", "versions", "device", "data_checksum")
        environments.append({key: environment[key] for key in keys})
    if any(environment != environments[0] for environment in environments):
        sys.exit("The runs were not all made by one commit in one environment. Make them again in an empty folder.")
    runs_text = ",\n".join("    " + json.dumps(run) for run in runs)
    record_path(name).parent.mkdir(exist_ok=True)
    record_path(name).write_text(
        f'{{\n  "environment": {json.dumps(environments[0])},\n  "runs": [\n{runs_text}\n  ]\n}}\n', encoding="utf-8"
    )


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


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
    for row, what in table["rows"].items():
        runs = runs_of(row, table, record)
        cells, low = [], []
        for column in columns:
            for split in splits.values():
                values = [100 * run["splits"][split]["average"] for run in runs if run["column"] == column]
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
    where = record["environment"]
    single = " (one seed where there is no ±)" if any("seeds" in what for what in table["rows"].values()) else ""
    note = f" {UPPER_BOUND_NOTE}" if marked else ""
    if borrowed:
        others = sorted({what["from"][0] for what in table["rows"].values() if "from" in what})
        rows = ", ".join(row for row, what in table["rows"].items() if "from" in what)
        note += f" From the record of {', '.join(f'[{other}]({other}.md)' for other in others)}: {rows}."
    return "\n".join(
        [
            f"# {table['title']}",
            "",
            (
                f"Mean ± standard deviation over seeds {seeds}{single}; {table['epoch']}; one "
                f"setting for all columns. Made by `python reproduce/run.py {name}` from "
                f"`reproduce/records/{name}.json` "
                f"({where['device']}, torch {where['versions']['torch']}, commit {str(where['commit'])[:12]}).{note}"
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
            *([table["notes"].rstrip(), ""] if "notes" in table else []),
        ]
    )


def _mean_and_deviation(values: list[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def _seed_by_seed(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Each seed's last split with its two largest shortcut scores: two high ones are a split shortcut."""
    scored = {row: [run for run in runs_of(row, table, record) if "shortcut_score" in run] for row in table["rows"]}
    label, split = list(table["splits"].items())[-1]
    lines = [
        f"Seed by seed, {label} accuracy, in brackets the two largest shortcut scores of the last epoch. Two high",
        "scores mean that training has spread the shortcut over two axes.",
        "",
        f"| | seed | {' | '.join(table['columns'])} |",
        "|---|---|" + "---|" * len(table["columns"]),
    ]
    for row, runs in scored.items():
        for seed in sorted({run["seed"] for run in runs}):
            cells = []
            for column in table["columns"]:
                (run,) = [run for run in runs if (run["column"], run["seed"]) == (column, seed)]
                first, second = sorted(run["shortcut_score"], reverse=True)[:2]
                cells.append(f"{100 * run['splits'][split]['average']:.1f} ({first:.2f}, {second:.2f})")
            lines.append(f"| {row} | {seed} | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", help="a table: the name of a .yaml file beside this one")
    parser.add_argument("--workers", type=int, default=1, help="processes that run side by side")
    parser.add_argument("--out", type=Path, help="folder for the runs (default: runs/reproduce/NAME)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="here", help="a setting such as data.root=DIR")
    parser.add_argument("--table", action="store_true", help="only make the table again from the record")
    options = parser.parse_args()
    out = options.out or Path("runs", "reproduce", options.name)
    if not options.table:
        run_all(options.name, out, options.device, options.workers, options.here)
        collect(options.name, out)
    page = HERE.parent / "docs" / "results" / f"{options.name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(options.name), encoding="utf-8")
    print(f"Wrote {page}")


if __name__ == "__main__":
    main()
