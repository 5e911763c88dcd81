"""Run, record and print a table of the paper: `python reproduce/run.py color_mnist [--workers N]`.

A table is data (reproduce/NAME.yaml): rows of presets, columns of settings, seeds, and the paper's values beside them.
Runs that are finished are kept, stopped ones continue. The record (reproduce/records/NAME.json) is what the table
(docs/results/NAME.md) is made of, so that it can be made again without a GPU: `--table` does only that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

HERE = Path(__file__).parent


def load_table(name: str) -> dict[str, Any]:
    return yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8"))


def record_path(name: str) -> Path:
    return HERE / "records" / f"{name}.json"


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
        for column, settings in table["columns"].items()
        for seed in table["seeds"]
    ]


def work(name: str, out: Path, device: str, worker: int, workers: int) -> None:
    """One worker's share of the runs, one after the other."""
    import torch

    import sitar

    torch.set_num_threads(1)
    for job in jobs(load_table(name))[worker::workers]:
        sitar.train(
            job["preset"], overrides=job["overrides"], seed=job["seed"], out=out / job["folder"],
            device=device, resume=True, progress=False,
        )  # fmt: skip
        print("done", job["folder"], flush=True)


def collect(name: str, out: Path) -> None:
    """The record: what the run folders say, as far as a table needs it."""
    runs = []
    for job in jobs(load_table(name)):
        folder = out / job["folder"]
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        last = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        splits = {
            split: {key: _short(metrics[key]) for key in ("n", "average", "worst_group")}
            for split, metrics in result["splits"].items()
        }
        run: dict[str, Any] = {key: job[key] for key in ("row", "column", "preset", "overrides", "seed")}
        run |= {"seconds": result["seconds"], "splits": splits}
        if "shortcut_score" in last:
            run["shortcut_score"] = [round(v, 3) for v in last["shortcut_score"]]
        runs.append(run)
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    environment = {key: environment[key] for key in ("commit", "python", "versions", "device", "data_checksum")}
    runs_text = ",\n".join("    " + json.dumps(run) for run in runs)
    record_path(name).parent.mkdir(exist_ok=True)
    record_path(name).write_text(
        f'{{\n  "environment": {json.dumps(environment)},\n  "runs": [\n{runs_text}\n  ]\n}}\n', encoding="utf-8"
    )


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def render(name: str) -> str:
    """The table as Markdown, from the record alone."""
    table, record = load_table(name), json.loads(record_path(name).read_text(encoding="utf-8"))
    columns, splits = list(table["columns"]), table["splits"]
    head = [f"{column}, {label}" for column in columns for label in splits]
    lines = [f"| | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    worst: list[str] = []
    for row in table["rows"]:
        cells, low = [], []
        for column in columns:
            chosen = [run for run in record["runs"] if run["row"] == row and run["column"] == column]
            for split in splits.values():
                values = [100 * run["splits"][split]["average"] for run in chosen]
                cells.append(f"{mean(values):.1f} ± {stdev(values):.1f}")
                low.append(f"{min(values):.1f}")
        lines.append(f"| {row} | {' | '.join(cells)} |")
        worst.append(f"| {row} | {' | '.join(low)} |")
    for row, values in table["paper"].items():
        lines.append(f"| *paper, {row}* | " + " | ".join(f"*{value}*" for pair in values for value in pair) + " |")
    seeds = ", ".join(map(str, table["seeds"]))
    where = record["environment"]
    return "\n".join(
        [
            f"# {table['title']}",
            "",
            (
                f"Mean ± standard deviation over seeds {seeds}; the last epoch unless the row says otherwise; one "
                f"setting for all columns. Made by `python reproduce/run.py {name}` from "
                f"`reproduce/records/{name}.json` "
                f"({where['device']}, torch {where['versions']['torch']}, commit {str(where['commit'])[:12]})."
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
        ]
    )


def _seed_by_seed(table: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Each seed's last split with its two largest shortcut scores: two high ones are a split shortcut."""
    scored = [run for run in record["runs"] if "shortcut_score" in run]
    rows = [row for row in table["rows"] if any(run["row"] == row for run in scored)]
    label, split = list(table["splits"].items())[-1]
    lines = [
        f"Seed by seed, {label} accuracy, in brackets the two largest shortcut scores of the last epoch. Two high",
        "scores mean that training has spread the shortcut over two axes.",
        "",
        f"| | seed | {' | '.join(table['columns'])} |",
        "|---|---|" + "---|" * len(table["columns"]),
    ]
    for row in rows:
        for seed in table["seeds"]:
            cells = []
            for column in table["columns"]:
                (run,) = [r for r in scored if (r["row"], r["column"], r["seed"]) == (row, column, seed)]
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
    parser.add_argument("--table", action="store_true", help="only make the table again from the record")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out or Path("runs", "reproduce", options.name)
    if options.worker is not None:
        work(options.name, out, options.device, options.worker, options.workers)
        return
    if not options.table:
        command = [sys.executable, __file__, options.name, "--out", str(out), "--device", options.device]
        command += ["--workers", str(options.workers), "--worker"]
        processes = [subprocess.Popen([*command, str(k)]) for k in range(options.workers)]
        statuses = [process.wait() for process in processes]
        if any(statuses):
            sys.exit("A worker failed; run the same command again to continue.")
        collect(options.name, out)
    page = HERE.parent / "docs" / "results" / f"{options.name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(options.name), encoding="utf-8")
    print(f"Wrote {page}")


if __name__ == "__main__":
    main()
