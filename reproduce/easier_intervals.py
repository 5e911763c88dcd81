"""Compute the paired intervals of the table easier_shortcut, over seeds and test images, as `sitar compare` does.

The records hold no predictions of single images, so that this reads the run folders:

    python reproduce/easier_intervals.py RUNS    RUNS is the folder that run.py wrote with --out

It writes reproduce/records/easier_intervals.json. Each task has the interval of `sitar compare --against` for one row
and one reference (docs/compare.md). The mean over the tasks has an interval of the same two parts. Its part of the
seeds is that of the mean gain of each seed. Tasks share test images, so their errors over images are not independent.
Its part of the images takes them as equal in sign, the worst case: it is the mean of the parts of the tasks.
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

TABLE, RECORD = "easier_shortcut", records.record_path("easier_intervals")
PAIRS = {axes: (f"sitar, {axes} axes", f"control, {axes} axes") for axes in (32, 10)}
SPLIT, METRIC = "test", "worst_group"


def finished(runs: Path) -> dict[tuple[str, str, int], Run]:
    """Read the finished runs of the table, by row, column and seed."""
    found = {}
    for job in records.jobs(records.load_table(TABLE)):
        folder = RunFolder(runs / TABLE / job["folder"])
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


def measured(runs: Path) -> list[dict[str, Any]]:
    """Return the gain on every task and on their mean, for each number of axes, over the seeds that all tasks have."""
    table, found, lines = records.load_table(TABLE), finished(runs), []
    for axes, pair in PAIRS.items():
        cells = [(row, column) for row in pair for column in table["columns"]]
        seeds = [seed for seed in table["seeds"] if all((*cell, seed) in found for cell in cells)]
        if not seeds:
            continue
        differences = {}
        for column in table["columns"]:
            row, reference = (Row(name, [found[name, column, seed] for seed in seeds]) for name in pair)
            (verdict,) = judge([(row, reference)], SPLIT, METRIC)
            differences[column] = verdict.difference
        for task, one in {**differences, "mean": mean_of(list(differences.values()))}.items():
            low, high = one.interval()
            said = {"gain": _short(one.value), "low": _short(low), "high": _short(high)}
            lines.append({"axes": axes, "task": task, "seeds": len(seeds), **said})
    return lines


def _short(value: float) -> float:
    return round(100 * value, 2)  # points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, help="the folder that run.py wrote with --out")
    lines = ",\n".join("    " + json.dumps(line) for line in measured(parser.parse_args().runs))
    write_atomic(RECORD, f'{{\n  "gains": [\n{lines}\n  ]\n}}\n'.encode())
    print(f"Wrote {RECORD}")


if __name__ == "__main__":
    main()
