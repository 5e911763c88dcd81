"""Measure, for every setting of planted.yaml, what could tell beforehand whether the noise helps.

    python reproduce/map_measures.py                          writes records/map_measures.json (minutes, on a CPU)
    python reproduce/map_measures.py --celeba DIR             adds the first look at the exchange benchmark's pairs

- `linear` is the ease of the label and of the shortcut, measured as ease.py does, on samples that no run has, in which
  the two are independent. It needs the attribute of these samples.
- `network` is the core AUC, on `val`, of ERM where no cue misleads (rho = 0.5), for the core and for the shortcut as
  the label. This is the ease of the second rule of when.py. It needs the attribute too.
- `first look` is what `sitar audit --first` measures, without any attribute: the accuracies of the best simple cues
  alone, and of the best principal components alone. `verdict` is the kind of its verdict.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import records
import torch
from ease import AXES, linear_ease

from sitar import train
from sitar.analysis.audit.first_look import first_look
from sitar.config import section_config
from sitar.data import load_data
from sitar.files import write_atomic

RECORD = records.record_path("map_measures")
OTHERS = 6000  # samples that ease is measured on, drawn anew
FIT = 0.7  # share of them that the linear model is fitted to, as in ease.py


def settings_of(words: list[str]) -> dict[str, str]:
    """Return the settings of data that a column has."""
    return dict(word.removeprefix("data.").split("=", 1) for word in words)


def data_of(settings: dict[str, Any]) -> tuple[Any, Any]:
    config = section_config("data", {"name": "planted", **settings})
    return config, load_data(config, progress=False)


def linear(settings: dict[str, Any]) -> dict[str, float]:
    """Return the ease of label and shortcut for the linear model."""
    _, data = data_of({**settings, "eval_size": OTHERS})
    others = data.evaluation["val_ood"]
    x, y, shortcut = (np.asarray(values) for values in (others.x, others.y, others.group % 2))
    fit = np.arange(len(y)) < FIT * len(y)
    ease = linear_ease(x, fit, ~fit, {"label": y, "shortcut": shortcut}, min(AXES, x.shape[1]))
    return {name: round(value, 4) for name, value in ease.items()}


def network(words: list[str]) -> dict[str, float]:
    """Return the ease of label and shortcut for a network."""
    found = {}
    for name, cue in (("label", "core"), ("shortcut", "shortcut")):
        with tempfile.TemporaryDirectory() as folder:
            overrides = [*words, "data.rho=0.5", f"data.label={cue}"]
            run = train("planted/erm", overrides=overrides, out=Path(folder) / "run", device="cpu", progress=False)
            found[name] = round(run.result()["splits"]["val"]["core_auc"], 4)
    return found


def look(found: Mapping[str, Any]) -> dict[str, float]:
    """Return the accuracies of the best cues of a first look. Columns of a table are left out."""
    cues = [cue for cue in found["cues"] if cue["kind"] != "column"]
    accuracies = sorted((cue["accuracy"] for cue in cues), reverse=True)
    components = sorted((cue["accuracy"] for cue in cues if cue["kind"] == "component"), reverse=True)
    names = {"best cue": accuracies[0], "best component": components[0], "second component": components[1]}
    return {name: round(float(value), 4) for name, value in names.items()}


def write(record: dict[str, Any]) -> None:
    parts = []
    for part, lines in record.items():
        rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(line)}" for name, line in lines.items())
        parts.append(f"  {json.dumps(part)}: {{\n{rows}\n  }}")
    write_atomic(RECORD, ("{\n" + ",\n".join(parts) + "\n}\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--celeba", type=Path, help="folder with CelebA's lists and its first 10,000 images")
    root = parser.parse_args().celeba
    torch.set_num_threads(1)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"planted": {}, "exchange": {}}
    for name, words in records.load_table("planted")["columns"].items():
        if name not in record["planted"]:
            settings = settings_of(words)
            config, data = data_of(settings)
            found = first_look(config, replace(data, train_groups=None))[0]  # a user may not have the attribute
            measured = {"linear": linear(settings), "network": network(words), "first look": look(found)}
            measured["verdict"] = found["verdict"]["kind"]
            record["planted"][name] = measured
            write(record)
            print(name, measured, flush=True)
    if root is not None:
        for name, words in records.load_table("exchange")["columns"].items():
            settings = {"name": "celeba", "root": str(root), "partition": "exchange", "majority_only": True}
            config = section_config("data", {**settings, **settings_of(words)})
            found = first_look(config, load_data(config, progress=False))[0]
            record["exchange"][name] = {"first look": look(found)}
            write(record)
            print(name, record["exchange"][name], flush=True)
    print(f"Wrote {RECORD}")


if __name__ == "__main__":
    main()
