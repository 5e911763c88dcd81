"""Time the way of a user with a folder of X-rays: 2,000 images of 512 pixels, from files to a model card.

    python benchmarks/tutorial.py --weights FILE --record reproduce/records/tutorial.json

The images are those of the tutorial (docs/tutorials/xrays.md), made larger by examples/xrays/plant.py: 1,800 to train
and to test on, and 200 new ones. For each method, `sitar train table_pretrained/METHOD`, `sitar predict` on the new
images and `sitar card` run in processes of their own. The cache is empty at first. Methods after the first find the
features of the encoder there. Seconds are those of the clock and of the processors. On a machine with other work, the
second count.
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

from sitar.training.environment import commit

PLANT = Path(__file__).parents[1] / "examples" / "xrays" / "plant.py"
SIZE = 512


def timed(arguments: list[str], cache: Path) -> dict[str, float]:
    """Run sitar in a process of its own. Return the seconds of the clock and of the processors, and the load before."""
    load, before, began = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "sitar", *arguments]
    subprocess.run(command, env={**os.environ, "SITAR_CACHE": str(cache)}, stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "processor_seconds": round(processors, 1), "load": round(load, 1)}


def way_to_a_card(method: str, place: Path, settings: list[str]) -> dict[str, Any]:
    """Train on the images, predict the new ones and write the card. Return what each step took and the run reached."""
    run = place / "runs" / method
    chosen = [word for setting in settings for word in ("--set", setting)]
    steps = {
        "train": ["train", f"table_pretrained/{method}", *chosen, "--out", str(run)],
        "predict": ["predict", str(run), str(place / "new"), "--out", str(place / f"{method}.csv")],
        "card": ["card", str(run), "--out", str(place / f"{method}.md")],
    }
    took = {name: timed(arguments, place / "cache") for name, arguments in steps.items()}
    test = json.loads((run / "result.json").read_text())["splits"]["test"]
    return {
        "preset": f"table_pretrained/{method}",
        **{name: round(sum(step[name] for step in took.values()), 1) for name in ("seconds", "processor_seconds")},
        "steps": took,
        "test": {name: test[name] for name in ("average", "worst_group")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="ResNet-50 weights, as model.encoder_weights")
    parser.add_argument("--stride-in-1x1", action="store_true", help="as model.stride_in_1x1")
    parser.add_argument("--methods", nargs="+", default=["sitar_best", "erm"])
    parser.add_argument("--keep", type=Path, help="work in this new folder and leave it; default: one that is removed")
    parser.add_argument("--record", type=Path, help="write the record into this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = given.keep or Path(temporary)
        subprocess.run([sys.executable, PLANT, "--out", place, "--size", str(SIZE)], check=True)
        settings = [
            f"data.root={place / 'xrays'}", "data.attribute_column=hospital", "data.split_column=split",
            f"model.encoder_weights={given.weights.resolve()}", f"model.stride_in_1x1={given.stride_in_1x1}",
        ]  # fmt: skip
        runs = []
        for method in given.methods:
            runs.append(way_to_a_card(method, place, settings))
            print(json.dumps(runs[-1]), flush=True)
        images = len([*place.glob("xrays/images/*.png"), *place.glob("new/*.png")])
    record = {
        "what": f"Seconds of the clock and of the processors from {images:,} image files of {SIZE}x{SIZE} pixels to "
        "a model card, by step, and what the run reaches on test, where the hospitals are balanced. The cache was "
        "empty before the first run; the second finds the features of the encoder there. load: of the last minute, "
        "before the step. Made by benchmarks/tutorial.py.",
        "command": "python " + " ".join(["benchmarks/tutorial.py", *_without_folders(sys.argv[1:])]),
        "commit": commit(),
        "cores": os.cpu_count(),
        "images": images,
        "runs": runs,
    }
    if given.record:
        given.record.write_text(json.dumps(record, indent=2) + "\n")


def _without_folders(arguments: list[str]) -> list[str]:
    """Return the arguments with the names of files alone, except for the place of the record."""
    return [word if word.startswith(("-", "reproduce/")) else Path(word).name for word in arguments]


if __name__ == "__main__":
    main()
