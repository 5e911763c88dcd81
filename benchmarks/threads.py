"""Time a whole `sitar train` with threads as it chooses them, and with one: `python benchmarks/threads.py [--busy]`.

The run is small: 3,000 rows of 64 random features. Both commands take turns. With `--busy` one more process for each
core computes all the time. The record has the seconds of the clock of every turn, and their ratio in each pair.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from sitar.training.environment import commit

ONE = "OMP_NUM_THREADS=1"
BURN = "while True: sum(range(10**6))"


def seconds(place: Path, name: str, environment: dict[str, str]) -> float:
    """Run the command in a new folder and return what it took."""
    words = ["train", "npz/sitar_best", "--set", f"data.file={place / 'features.npz'}", "--device", "cpu", "--quiet"]
    began = time.perf_counter()
    command = [sys.executable, "-m", "sitar", *words, "--out", str(place / name)]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def pairs(number: int, place: Path) -> list[dict[str, float]]:
    """Run both commands in turns. Which of them is first changes from pair to pair."""
    free = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    found = []
    for i in range(number):
        both = {"default": free, ONE: {**free, "OMP_NUM_THREADS": "1"}}
        order = list(both) if i % 2 == 0 else list(reversed(both))
        taken = {name: seconds(place, f"{name}-{i}-{time.time_ns()}", both[name]) for name in order}
        pair = {name: round(taken[name], 2) for name in both}
        found.append({**pair, "ratio": round(taken["default"] / taken[ONE], 3)})
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--busy", action="store_true", help="keep every core busy")
    parser.add_argument("--record", type=Path, help="write what was measured into this file, beside what is there")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range((os.cpu_count() or 1) * given.busy)]
    with tempfile.TemporaryDirectory() as temporary:
        place, random = Path(temporary), np.random.default_rng(0)
        x = random.normal(size=(3000, 64)).astype(np.float32)
        np.savez(place / "features.npz", x=x, y=(x[:, 0] + random.normal(size=3000) > 0).astype(int))
        try:
            found = pairs(given.pairs, place)
        finally:
            for burner in burners:
                burner.kill()
    ratios = [pair["ratio"] for pair in found]
    print(f"default / one thread: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    if given.record:
        earlier: dict[str, Any] = json.loads(given.record.read_text()) if given.record.exists() else {}
        measured = {
            "commit": commit(),
            "cores": os.cpu_count(),
            "load_before": round(load, 1),
            "median": median(ratios),
            "pairs": found,
        }
        now = {**earlier, "busy" if given.busy else "free": measured}
        given.record.write_text(json.dumps(now, indent=2) + "\n")


if __name__ == "__main__":
    main()
