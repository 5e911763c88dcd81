"""Choose the noise of the planted presets: `python reproduce/planted_tuning.py` writes records/planted_tuning.json.

Every candidate runs on settings of planted data that the map does not have (planted_settings.py, another draw), with
one seed. The rule was written before the runs: of the candidates whose mean core AUC is at most 2 points below the
control's, the one with the highest mean worst group; where there is none, the one with the highest core AUC.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from planted_settings import TUNING_SEED, TUNING_SIZE, settings

from sitar.files import write_atomic

RECORD = Path(__file__).parent / "records" / "planted_tuning.json"
MOST_LOST = 0.02
AXIS = [("axis", alpha, weight) for alpha, weight in itertools.product((1.0, 3.0), (1.0, 10.0))]
OTHERS = [
    (noise, alpha, weight) for noise, alpha, weight in itertools.product(("direction", "swap"), (0.3, 1.0), (1.0, 10.0))
]
CONTROL = ("axis", 0.0, 0.0)


def measure(noise: str, alpha: float, weight: float, words: list[str], folder: Path) -> dict[str, float]:
    """Train one candidate and return its metrics on data in which label and shortcut are independent."""
    import sitar

    overrides = [*words, f"method.noise={noise}", f"method.alpha={alpha}", f"method.lambda={weight}"]
    run = sitar.train("planted/control", overrides=overrides, out=folder, device="cpu", progress=False)
    found = run.result()["splits"]["ood_test"]
    return {name: round(found[name], 4) for name in ("worst_group", "core_auc", "shortcut_auc")}


def choose(
    runs: Sequence[Mapping[str, Any]], candidates: Sequence[tuple[str, float, float]]
) -> tuple[str, float, float]:
    """Choose a candidate by the rule above."""

    def score(candidate: tuple[str, float, float], metric: str) -> float:
        return mean(run[metric] for run in runs if (run["noise"], run["alpha"], run["lambda"]) == candidate)

    least = score(CONTROL, "core_auc") - MOST_LOST
    good = [candidate for candidate in candidates if score(candidate, "core_auc") >= least]
    if good:
        return max(good, key=lambda candidate: score(candidate, "worst_group"))
    return max(candidates, key=lambda candidate: score(candidate, "core_auc"))


def main() -> None:
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    for name, words in settings(TUNING_SIZE, TUNING_SEED).items():
        for noise, alpha, weight in [CONTROL, *AXIS, *OTHERS]:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(noise, alpha, weight, words, Path(folder) / "run")
            runs.append({"setting": name, "noise": noise, "alpha": alpha, "lambda": weight, **found})
            print(runs[-1], flush=True)
    chosen = {"sitar": choose(runs, AXIS), "sitar_best": choose(runs, OTHERS)}
    lines = ",\n".join("    " + json.dumps(run) for run in runs)
    text = f'{{\n  "chosen": {json.dumps(chosen)},\n  "runs": [\n{lines}\n  ]\n}}\n'
    write_atomic(RECORD, text.encode())
    print(f"Wrote {RECORD}: {chosen}")


if __name__ == "__main__":
    main()
