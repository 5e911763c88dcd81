"""Walk through the tutorial of the X-rays in a folder, and record what it measures: `python reproduce/xrays.py FOLDER`.

It makes the data, trains the three models on a CPU with seed 0, refits a last layer with the 50 answers, and writes
reproduce/records/xrays.json. Runs that are finished stay. docs/tutorials/xrays.md is the tutorial.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import sitar
from sitar.files import write_atomic
from sitar.run_folder import RunFolder

HERE = Path(__file__).resolve().parent
RECORD = HERE / "records" / "xrays.json"
METHODS = ("erm", "control", "sitar_best")
SETTINGS = (
    "data.root=xrays", "data.split_column=split", "data.attribute_column=hospital", "data.image_size=32",
    "data.channels=1",
)  # fmt: skip
MEASURES = ("average", "worst_group", "core_auc", "shortcut_auc")


def summary(name: str, folder: RunFolder) -> dict[str, Any]:
    """Return what a run has on validation and test."""
    splits, environment = folder.result()["splits"], folder.environment() or {}
    measured = {
        split: {key: splits[split].get(key) for key in MEASURES} for split in ("val", "test") if split in splits
    }
    return {
        "run": name,
        "seed": 0,
        "device": environment.get("device"),
        "commit": environment.get("commit"),
        **measured,
    }


def main(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    with chdir(place):
        if not Path("xrays").exists():
            subprocess.run([sys.executable, HERE.parent / "examples/xrays/plant.py"], check=True)
        runs = [Path("runs", method) for method in METHODS]
        for method, run in zip(METHODS, runs, strict=True):
            sitar.train(f"table/{method}", overrides=SETTINGS, out=run, device="cpu", resume=run.exists())
        if not Path("runs/refit").exists():
            answers = ["--images", "new", "--answers", "answers.csv", "--out", "runs/refit"]
            subprocess.run([sys.executable, "-P", "-m", "sitar", "refit", *map(str, runs), *answers], check=True)
        rows = [summary(run.name, RunFolder(run)) for run in (*runs, Path("runs/refit"))]
    record = json.dumps({"settings": SETTINGS, "answers": 50, "runs": rows}, indent=2)
    write_atomic(RECORD, (record + "\n").encode())
    print(record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
