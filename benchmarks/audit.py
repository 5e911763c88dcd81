"""Time `sitar audit` on a folder of 10,000 images of 64x64 pixels, as a user gives it: `python benchmarks/audit.py`.

The images are digits with a white mark in a corner, which agrees with the label in 90 % of them. The commands start
with an empty cache, so their seconds hold the start of Python and the decoding of every file. Processor time is that of
all their processes.

    python benchmarks/audit.py --record reproduce/records/audit_time.json
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

import numpy as np
from PIL import Image

from sitar.data.benchmarks.mnist_files import load_mnist
from sitar.training.environment import commit

SIDE, MARK, AGREES = 64, 6, 0.9


def make(folder: Path, images: int) -> None:
    """Write digits 0-4 and 5-9 into a folder each, as PNG files."""
    mnist, random = load_mnist(), np.random.default_rng(0)
    for number in range(images):
        label = int(mnist.train_digits[number] >= 5)
        pixels = np.array(Image.fromarray(mnist.train_images[number]).resize((SIDE, SIDE)).convert("RGB"))
        if (random.random() < AGREES) == bool(label):
            pixels[-MARK:, -MARK:] = 255
        place = folder / ("low", "high")[label] / f"{number:05d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place)


def timed(words: list[str], place: Path) -> dict[str, Any]:
    """Run a command with a cache of its own. Return its seconds, and the cues that it names."""
    environment = {**os.environ, "SITAR_CACHE": str(place / f"cache{time.time_ns()}")}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "sitar", "audit", *words, "--json", "--quiet", "--device", "cpu"]
    done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cues = json.loads(done.stdout)["first_look"]["cues"]
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(spent, 1),
        "best": cues[0]["name"],
        "accuracy": round(cues[0]["accuracy"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--record", type=Path, help="write what was measured into this file")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        make(place / "digits", given.images)
        found = {"first look": timed(["digits", "--first"], place), "whole audit": timed(["digits"], place)}
    record = {
        "images": given.images,
        "side": SIDE,
        "commit": commit(),
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        **found,
    }
    if given.record is not None:
        given.record.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
