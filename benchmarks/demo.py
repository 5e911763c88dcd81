"""Time `sitar demo` as a command, from the start of Python to the report: `python benchmarks/demo.py`.

Every turn is a new folder, and the seeds are those that are given. Processor time is that of all its processes. `runs`
are the seconds that each of the three runs trained, side by side with the others.

    python benchmarks/demo.py --record reproduce/records/demo_time.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sitar.presets import load_config
from sitar.training.environment import commit


def timed(seed: int, settings: list[str], place: Path) -> dict[str, Any]:
    """Run the command once. Return its seconds, and the accuracies out of distribution."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "sitar", "demo", "--seed", str(seed), "--device", "cpu", "--json", *settings]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    runs = json.loads(done.stdout)["runs"]
    return {
        "seed": seed,
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(spent, 1),
        "runs": {label: round(run["seconds"], 1) for label, run in runs.items()},
        "ood": {label: round(run["splits"]["ood_test"]["average"], 4) for label, run in runs.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", dest="settings", action="append", default=[], help="for all runs, as `sitar demo`")
    parser.add_argument("--record", type=Path, help="write what was measured into this file")
    given = parser.parse_args()
    load, words = os.getloadavg()[0], [word for setting in given.settings for word in ("--set", setting)]
    turns = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, seed in enumerate(given.seeds):
            place = Path(temporary, str(number))
            place.mkdir()
            turns.append(timed(seed, words, place))
            print(json.dumps(turns[-1]), flush=True)
    train = load_config("demo/sitar", given.settings, 0).train
    record = {
        "what": "Seconds of `sitar demo`, from the start of Python to the report. benchmarks/demo.py made it.",
        "commit": commit(), "cores": os.cpu_count(), "torch": torch.__version__, "load_before": round(load, 1),
        "batch_size": train.batch_size, "epochs": train.epochs, "turns": turns,
    }  # fmt: skip
    if given.record is not None:  # other measurements that stand there stay
        earlier = json.loads(given.record.read_text()) if given.record.exists() else {}
        given.record.write_text(json.dumps({**earlier, **record}, indent=1) + "\n")


if __name__ == "__main__":
    main()
