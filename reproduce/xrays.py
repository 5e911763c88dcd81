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
ANSWERS = ("--images", "new", "--answers", "answers.csv")
MEASURES = ("average", "worst_group", "core_auc", "shortcut_auc")


def command(*words: object) -> str:
    """Run a command of sitar, and return what it prints."""
    line = [sys.executable, "-P", "-m", "sitar", *map(str, words)]
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout


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
            command("refit", *runs, *ANSWERS, "--out", "runs/refit")
        rows = [summary(run.name, RunFolder(run)) for run in (*runs, Path("runs/refit"))]
        choice = json.loads(command("choose", *runs, *ANSWERS, "--json"))
        refitted = RunFolder(Path("runs/refit")).result()["refit"]["run"]
    taken = {"chosen": Path(choice["chosen"]["run"]).name, "refitted": Path(refitted).name}
    record = json.dumps({"settings": SETTINGS, "answers": 50, **taken, "runs": rows}, indent=2)
    write_atomic(RECORD, (record + "\n").encode())
    print(record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
