"""Train, predict, ask and report in one process, for an hour: `python benchmarks/soak.py --minutes 60`.

After every round the process is asked for its memory, its open files, its threads and its children. What a process has
after the first quarter of the time is compared with what it has in the last one: by then, all that is loaded once is
loaded. The exit status is 1 if one of them has grown.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image

import sitar
from sitar.analysis.answers import AnswersFile
from sitar.analysis.ask.pool import read_pool
from sitar.analysis.ask.session import Session
from sitar.evaluation.inputs import input_windows
from sitar.evaluation.prediction_table import Predictor, write_predictions
from sitar.reporting.html.report import write_report
from sitar.training.environment import commit
from sitar.writing import replaced

TINY = ["data.image_size=16", "model.channels=[4]", "model.hidden=8", "train.epochs=3", "train.batch_size=16"]
PRESETS = ("folder/sitar_best", "folder/erm", "folder/vae", "folder/control")
ANSWERS, NEW = 20, 60
MEGABYTES = 2**20
ROOM = {"memory": 0.03, "files": 0, "threads": 0, "children": 0}  # by which each may grow, as a share


def make_images(folder: Path, n: int) -> None:
    """Write images of noise, which differ from each other."""
    random = np.random.default_rng(n + len(str(folder)))
    folder.mkdir(parents=True)
    for i in range(n):
        Image.fromarray(random.integers(0, 256, (20, 18, 3), dtype=np.uint8)).save(folder / f"{i:03}.png")


def once(number: int, place: Path, data: Path, new: Path) -> None:
    """Do all of it once: train two runs, predict new images, ask about them, and write a report."""
    runs = [
        sitar.train(
            PRESETS[(number + i) % len(PRESETS)], seed=number, overrides=[*TINY, f"data.root={data}"],
            out=place / f"run{i}", device="cpu", progress=False,
        )
        for i in range(2)
    ]  # fmt: skip
    model = sitar.load(runs[0], device="cpu")
    total, windows = input_windows([str(new)], model, 32)
    done, unreadable = write_predictions(Predictor(model), windows, place / "out.csv")
    assert (done, total, unreadable) == (NEW, NEW, {})
    file = AnswersFile(place / "answers.csv")
    pool = read_pool([run.path for run in runs], new, file.path, "cpu", progress=False)
    with Session.opened(pool, file) as session:
        for i in range(ANSWERS):
            assert session.question is not None
            session.answer(session.question.image, i % len(pool.classes))
    write_report([run.path for run in runs], place / "report.html")


def state(process: psutil.Process) -> dict[str, float]:
    gc.collect()
    return {
        "memory": process.memory_info().rss / MEGABYTES, "files": process.num_fds(),
        "threads": process.num_threads(), "children": len(process.children(recursive=True)),
    }  # fmt: skip


def judged(seen: list[dict[str, float]]) -> dict[str, Any]:
    """Compare the second quarter of the rounds with the last one."""
    quarter = max(1, len(seen) // 4)
    found: dict[str, Any] = {}
    for key, share in ROOM.items():
        early = median(one[key] for one in seen[quarter : 2 * quarter] or seen)
        late = median(one[key] for one in seen[-quarter:])
        found[key] = {"early": round(early, 1), "late": round(late, 1), "flat": late <= early * (1 + share)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--record", type=Path, help="write what was measured into this file, also while it runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    process, began, seen = psutil.Process(), time.monotonic(), []
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["SITAR_CACHE"] = str(Path(temporary, "cache"))
        data, new = Path(temporary, "data"), Path(temporary, "new")
        for split, name, n in ((s, c, n) for s, n in (("train", 40), ("val", 15), ("test", 15)) for c in "ab"):
            make_images(data / split / name, n)
        make_images(new, NEW)
        while (minutes := (time.monotonic() - began) / 60) < given.minutes:
            place = Path(temporary, "round")
            place.mkdir()
            once(len(seen), place, data, new)
            shutil.rmtree(place)
            seen.append({"minute": round((time.monotonic() - began) / 60, 2), **state(process)})
            record = {
                "commit": commit(), "minutes": round(minutes, 1), "rounds": len(seen), "trainings": 2 * len(seen),
                "answers": ANSWERS * len(seen), "predictions": NEW * len(seen), "reports": len(seen), **judged(seen),
            }  # fmt: skip
            if given.record:
                with replaced(given.record) as file:
                    file.write((json.dumps(record, indent=2) + "\n").encode())
    print(json.dumps(record, indent=2))
    return 0 if all(record[key]["flat"] for key in ROOM) else 1


if __name__ == "__main__":
    sys.exit(main())
