"""Take the first look of `sitar audit` at digits on ten seeds: `python reproduce/first_look_runs.py`.

The digits are those of ColorMNIST: with a colour that agrees with the label (rho = 0.9), with a colour that does not
(rho = 0.5), and with such a colour and a white mark in a corner that agrees with the label in 90 % of the samples. The
column `color` is taken away, so that a cue must be found in the pixels. The time is processor time, of 10,000
images of 64x64 pixels in memory. The record is reproduce/records/first_look_runs.json.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import interpolate

from sitar.analysis.audit.first_look import first_look
from sitar.data import load_data
from sitar.data.types import Data, TrainSplit
from sitar.files import write_atomic
from sitar.presets import load_config

RECORD = Path(__file__).parent / "records" / "first_look_runs.json"
SEEDS, SAMPLES, MARK = range(10), 2000, 3
KINDS = {"colour": (0.9, False), "a mark in a corner": (0.5, True), "no cue": (0.5, False)}


def digits(rho: float, marked: bool, seed: int, samples: int = SAMPLES) -> tuple[Any, Data]:
    """Return the settings and the data, without the column of the colour."""
    config = load_config("color_mnist/vae", [f"data.rho={rho}", f"data.seed={seed}", f"data.train_size={samples}"]).data
    data = load_data(config)
    x, y = data.train.x.clone(), data.train.y
    if marked:
        agrees = torch.rand(len(y), generator=torch.Generator().manual_seed(seed)) < 0.9
        x[agrees == (y == 1), :, -MARK:, -MARK:] = 255
    return config, replace(data, train=TrainSplit(x, y), train_groups=None, attributes={})


def summary(kind: str, seed: int) -> dict[str, Any]:
    look, _ = first_look(*digits(*KINDS[kind], seed))
    best = look["cues"][0]
    told = [cue["name"] for cue in look["cues"] if cue["strength"] == "tells"]
    return {"kind": kind, "seed": seed, "best": best["name"], "accuracy": round(best["accuracy"], 3), "tells": told}


def timed() -> dict[str, Any]:
    config, data = digits(0.9, False, 0, 10_000)
    large = TrainSplit(interpolate(data.train.x, (64, 64)), data.train.y)
    began = time.process_time()
    look, _ = first_look(config, replace(data, train=large))
    return {"images": look["n"], "cues": len(look["cues"]), "processor_seconds": round(time.process_time() - began, 1)}


def main() -> None:
    rows = [summary(kind, seed) for kind in KINDS for seed in SEEDS]
    wanted = {"colour": "mean colour", "a mark in a corner": "bottom right corner"}
    found = {kind: sum(name in row["tells"] for row in rows if row["kind"] == kind) for kind, name in wanted.items()}
    found["no cue"] = sum(bool(row["tells"]) for row in rows if row["kind"] == "no cue")
    record = {"samples": SAMPLES, "found": found, "time": timed(), "runs": rows}
    write_atomic(RECORD, (json.dumps(record, indent=2) + "\n").encode())
    print(json.dumps({key: value for key, value in record.items() if key != "runs"}, indent=2))


if __name__ == "__main__":
    main()
