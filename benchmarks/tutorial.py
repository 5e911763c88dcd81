"""Time the way of a user with a folder of X-rays: 2,000 images of 512 pixels, a table of them, two hospitals.

    python benchmarks/tutorial.py --xrays pneumoniamnist.npz --weights FILE --record reproduce/records/tutorial.json

The images are chest X-rays of PneumoniaMNIST (CC BY 4.0), enlarged. Two hospitals are planted: each has its tag in a
corner and its contrast. In train and val most of the ill come from one hospital. In test the hospitals are balanced.
Then `sitar train table_pretrained/METHOD` runs in a process of its own, with an empty cache, from image files to a
finished run. Seconds are those of the clock and of the processors. On a machine with other work, the second count.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIZE = 512
SAMPLES = {"train": 1400, "val": 200, "test": 400}
FOLLOWS = {"train": 0.95, "val": 0.95, "test": 0.5}  # share of samples whose hospital tells the label
CLASSES, HOSPITALS = ("normal", "pneumonia"), ("north", "south")


def xray(pixels: np.ndarray, hospital: int, random: np.random.Generator) -> Image.Image:
    """Enlarge an X-ray, and give it the contrast, the grain and the tag of a hospital."""
    image = np.asarray(Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BICUBIC), np.float32)
    low, high = ((0, 235), (30, 255))[hospital]
    image = low + image / 255 * (high - low) + random.normal(0, 3, image.shape)
    picture = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))
    corner = (SIZE - 70, 20) if hospital else (20, 20)
    ImageDraw.Draw(picture).text(corner, "RL"[hospital], fill=255, font_size=56)
    return picture


def make_folder(xrays: Path, folder: Path) -> dict[str, int]:
    """Write the images and their table, and return how many samples each (label, hospital) of train has."""
    random = np.random.default_rng(0)
    given = np.load(xrays)
    rows, cells = [], {}
    (folder / "images").mkdir(parents=True)
    for split, count in SAMPLES.items():
        labels = given[f"{split}_labels"].ravel()
        for i in random.permutation(len(labels))[:count]:
            label = int(labels[i])
            hospital = label if random.random() < FOLLOWS[split] else 1 - label
            path = f"images/{split}{i:05d}.png"
            xray(given[f"{split}_images"][i], hospital, random).save(folder / path, compress_level=1)
            rows.append([path, CLASSES[label], HOSPITALS[hospital], split])
            if split == "train":
                cell = f"{CLASSES[label]}, {HOSPITALS[hospital]}"
                cells[cell] = cells.get(cell, 0) + 1
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label", "hospital", "split"], *rows])
    return dict(sorted(cells.items()))


def timed(arguments: list[str], cache: Path) -> tuple[float, float]:
    """Run sitar in a process of its own. Return the seconds of the clock and of the processors."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "sitar", *arguments]
    subprocess.run(command, env={**os.environ, "SITAR_CACHE": str(cache)}, stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xrays", type=Path, required=True, help="pneumoniamnist.npz of MedMNIST")
    parser.add_argument("--weights", type=Path, required=True, help="ResNet-50 weights, as model.encoder_weights")
    parser.add_argument("--stride-in-1x1", action="store_true", help="as model.stride_in_1x1")
    parser.add_argument("--methods", nargs="+", default=["sitar_best"])
    parser.add_argument("--record", type=Path, help="write the record into this file")
    given = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        cells = make_folder(given.xrays, place / "xrays")
        for method in given.methods:
            settings = [
                f"data.root={place / 'xrays'}", "data.attribute_column=hospital", "data.split_column=split",
                f"model.encoder_weights={given.weights.resolve()}", f"model.stride_in_1x1={given.stride_in_1x1}",
            ]  # fmt: skip
            arguments = [word for setting in settings for word in ("--set", setting)]
            out, load = place / method, os.getloadavg()[0]
            cache = place / f"cache-{method}"
            wall, processors = timed(["train", f"table_pretrained/{method}", *arguments, "--out", str(out)], cache)
            test = json.loads((out / "result.json").read_text())["splits"]["test"]
            runs.append(
                {
                    "preset": f"table_pretrained/{method}", "seconds": round(wall, 1),
                    "processor_seconds": round(processors, 1), "load_before": round(load, 1),
                    "load_after": round(os.getloadavg()[0], 1),
                    "test": {name: test[name] for name in ("average", "worst_group")},
                }
            )  # fmt: skip
            print(json.dumps(runs[-1]), flush=True)
    record = {
        "what": "Seconds of the clock and of the processors from 2,000 image files of 512x512 pixels to a finished "
        "run, with an empty cache, and what the run reaches on test, where the hospitals are balanced. Made by "
        "benchmarks/tutorial.py from PneumoniaMNIST.",
        "command": "python " + " ".join(["benchmarks/tutorial.py", *_without_folders(sys.argv[1:])]),
        "cores": os.cpu_count(),
        "images": sum(SAMPLES.values()),
        "train": cells,
        "runs": runs,
    }
    if given.record:
        given.record.write_text(json.dumps(record, indent=2) + "\n")


def _without_folders(arguments: list[str]) -> list[str]:
    """Return the arguments with the names of files alone, except for the place of the record."""
    return [word if word.startswith(("-", "reproduce/")) else Path(word).name for word in arguments]


if __name__ == "__main__":
    main()
