"""Compute paired intervals of a table over seeds and test images, as `sitar compare --against` does.

The records hold no predictions of single images, so that this reads the run folders:

    python reproduce/paired_intervals.py TABLE RUNS    RUNS is the folder that run.py wrote with --out

It writes its lines of reproduce/records/paired_intervals.json, and leaves those of other tables. Each task has the
interval of one row against one reference (docs/compare.md). A mean over tasks has an interval of the same two parts.
Its part of the seeds is that of the mean gain of each seed. Tasks share test images, so their errors over images are
not independent. Its part of the images takes them as equal in sign, the worst case: it is the mean of the parts of the
tasks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import records

from sitar.files import write_atomic
from sitar.reporting.against import judge
from sitar.reporting.comparison import Row
from sitar.reporting.paired import Difference
from sitar.run_folder import Run, RunFolder

RECORD = records.record_path("paired_intervals")
PAIRS = {  # of each table: rows and their references
    "easier_shortcut": [("sitar, 32 axes", "control, 32 axes"), ("sitar, 10 axes", "control, 10 axes")],
    "own_faces": [("sitar_best", "control"), ("sitar_best", "ERM"), ("control", "ERM")],
}
EXCHANGED = ["Male with Smiling", "Wearing_Lipstick with Mouth_Slightly_Open", "Male with Oval_Face"]
SPLIT, METRIC = "test", "worst_group"


def finished(name: str, runs: Path) -> dict[tuple[str, str, int], Run]:
    """Read the finished runs of a table, by row, column and seed."""
    found = {}
    for job in records.jobs(records.load_table(name)):
        folder = RunFolder(runs / name / job["folder"])
        if folder.result_file.is_file():
            found[job["row"], job["column"], job["seed"]] = Run.read(folder)
    return found


def mean_of(differences: Sequence[Difference]) -> Difference:
    """Return the mean over tasks of differences on the same seeds. Errors over images are taken as equal in sign."""
    seeds = len(differences[0].each)
    error = float(np.mean([np.sqrt(common_error(difference)) for difference in differences]))
    each = np.stack([difference.each for difference in differences]).mean(0, dtype=np.float64)
    centre = np.stack([difference.centre for difference in differences]).mean(0, dtype=np.float64)
    return Difference(each, centre, np.full((seeds, seeds), error**2))


def common_error(difference: Difference) -> float:
    """Return the variance over other test images that all seeds share, as the interval of a difference counts it."""
    seeds, covariance = len(difference.each), difference.covariance
    if seeds == 1:
        return float(covariance[0, 0])
    return max(0.0, float(covariance.sum() - np.trace(covariance)) / (seeds * (seeds - 1)))


def groups(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the tasks of each mean: those that are named first, and apart from them the same with roles exchanged."""
    exchanged = [column for column in columns if column in EXCHANGED]
    first = [column for column in columns if column not in EXCHANGED]
    return {"mean": first} | ({"mean, roles exchanged": exchanged} if exchanged else {})


def measured(name: str, runs: Path) -> list[dict[str, Any]]:
    """Return the gain on every task and on their means, for each pair of rows, over seeds that all its tasks have."""
    table, found, lines = records.load_table(name), finished(name, runs), []
    for pair in PAIRS[name]:
        for mean, columns in groups(list(table["columns"])).items():
            cells = [(row, column) for row in pair for column in columns]
            seeds = [seed for seed in table["seeds"] if all((*cell, seed) in found for cell in cells)]
            if not seeds:
                continue
            differences = {}
            for column in columns:
                row, reference = (Row(of, [found[of, column, seed] for seed in seeds]) for of in pair)
                (verdict,) = judge([(row, reference)], SPLIT, METRIC)
                differences[column] = verdict.difference
            for task, one in {**differences, mean: mean_of(list(differences.values()))}.items():
                low, high = one.interval()
                said = {"gain": _short(one.value), "low": _short(low), "high": _short(high)}
                about = {"table": name, "row": pair[0], "reference": pair[1], "task": task}
                lines.append({**about, "seeds": len(seeds), **said})
    return lines


def _short(value: float) -> float:
    return round(100 * value, 2)  # points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", choices=list(PAIRS))
    parser.add_argument("runs", type=Path, help="the folder that run.py wrote with --out")
    options = parser.parse_args()
    others = [line for line in json.loads(RECORD.read_text())["gains"] if line["table"] != options.table]
    lines = ",\n".join("    " + json.dumps(line) for line in [*others, *measured(options.table, options.runs)])
    write_atomic(RECORD, f'{{\n  "gains": [\n{lines}\n  ]\n}}\n'.encode())
    print(f"Wrote {RECORD}")


if __name__ == "__main__":
    main()
