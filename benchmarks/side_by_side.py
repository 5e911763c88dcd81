"""Time runs side by side on one device, each in a process of its own: `python benchmarks/side_by_side.py`.

It answers how many runs at once are best, as `sitar sweep --workers N` and `reproduce/run.py --workers N` make them.
On a GPU start `nvidia-cuda-mps-control -d` first: without it the kernels of processes take turns.

    python benchmarks/side_by_side.py --runs 1 15 30 45 --record reproduce/records/side_by_side.json    # on a GPU
    python benchmarks/side_by_side.py --device cpu --presets demo/erm --runs 1 2 --seconds 1
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from contestants import Contestant, Work, one_thread
from seeds import SHAPES

from sitar.devices import device_name, resolve_device
from sitar.training.environment import commit

ROWS = 4096
TRIAL = 20  # steps that tell how many fill the time of a turn


def measure(work: Work, numbers: list[int], seconds: float) -> list[dict[str, Any]]:
    """Return what a step of each run takes, and what one step takes of the device, for each number of runs."""
    batch = work.config.train.batch_size
    runs = [Contestant(one_thread, work) for _ in range(max(numbers))]
    rows = []
    try:
        for run in runs:
            run.prepared()
        for number in sorted(numbers):
            steps = TRIAL
            for _ in range(2):  # the second turn is as long as asked for
                for run in runs[:number]:
                    run.begin(steps)
                taken = [run.end() for run in runs[:number]]
                steps = max(TRIAL, int(1000 * seconds / max(taken)))
            mean = sum(taken) / number
            rows.append({"preset": work.preset, "batch": batch, "runs": number, "milliseconds": round(mean, 4),
                         "milliseconds_a_run": round(mean / number, 4)})  # fmt: skip
            rows[-1]["gain"] = round(rows[0]["milliseconds_a_run"] / rows[-1]["milliseconds_a_run"], 2)
            print(json.dumps(rows[-1]), flush=True)
    finally:
        for run in runs:
            run.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["color_mnist/sitar"])
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 512])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 15, 30])
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--record", type=Path, help="write what was measured into this file")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for preset in given.presets:
        for batch in given.batches:
            work = Work(preset, SHAPES[preset.partition("/")[0]], ROWS, given.device, (f"train.batch_size={batch}",))
            rows += measure(work, given.runs, given.seconds)
    record = {
        "what": "Milliseconds of a training step with several runs side by side: of each run, and divided by the runs. "
        "gain: over the smallest number of runs. benchmarks/side_by_side.py made it.",
        "device": device_name(resolve_device(given.device)), "cores": os.cpu_count(), "torch": torch.__version__,
        "commit": commit(), "rows": rows,
    }  # fmt: skip
    if given.record:
        given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
