"""Choose the rule of the first look of `sitar audit` on generated data. No dataset is used.

As in audit_rule.py, every axis tells a little about the label, and a cue is one more axis, which agrees with the label
with probability rho. The cues of a first look are axes, and groups of five axes, as a corner of an image is five
numbers.

- Cross-validation is less sure than as many independent samples, because folds share their training samples. So
  intervals are made wider. The factor is the lowest with which at most 5 % of the data whose labels are drawn at random
  have a cue that is surely better than chance.
- The threshold for "tells the label" is the lowest one that at most 1 % of the data without a cue pass.

Both must hold for every number of samples.

    python reproduce/first_look_rule.py    writes reproduce/records/first_look_rule.json
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from audit_rule import FALSE_ALARMS, GRID, latents

from sitar.analysis.audit.cues import LEVEL, Cue, predict, score_predictions, standard_errors
from sitar.files import write_atomic

RECORD = Path(__file__).parent / "records" / "first_look_rule.json"
SAMPLES = (200, 400, 1000, 4000)
AXES, CLASSES, STRENGTHS = (12, 30, 60), (2, 5), (0.7, 0.8, 0.9, 1.0)
REPEATS = 20
GROUP = 5  # axes that are one cue
FACTORS = [round(1 + 0.1 * i, 1) for i in range(11)]

Predicted = tuple[np.ndarray, np.ndarray, int, float]


def cues_of(mu: np.ndarray, planted: int) -> list[Cue]:
    """Make cues of axes: single ones and groups of five in turn; a planted cue, the last axis, stands alone."""
    rest, cues, place = mu.shape[1] - planted, [], 0
    for i in itertools.count():
        size = min(GROUP if i % 2 else 1, rest - place)
        if size <= 0:
            break
        cues.append(Cue(f"cue {i}", "image", mu[:, place : place + size]))
        place += size
    return cues + [Cue("planted", "image", mu[:, [rest + i]]) for i in range(planted)]


def generated(n: int, axes: int, classes: int, planted: int, rho: float, seed: int, mixed: bool) -> list[Predicted]:
    """Generate data, and predict the labels from the planted cue, or from every cue where none is planted.

    Return labels, predictions, and the standard errors that intervals reach. With `mixed`, labels are drawn at random.
    """
    random = torch.Generator().manual_seed(seed)
    while True:
        mu, y = latents(n, axes + planted, classes, planted, rho, random)
        if torch.bincount(y, minlength=classes).min() >= 20:
            break
    if mixed:
        y = y[torch.randperm(n, generator=random)]
    cues = cues_of(mu.double().numpy(), planted)
    found = predict(cues[-1:] if planted else cues, y.numpy(), classes)
    return [(y.numpy(), predicted, classes, standard_errors(len(cues))) for predicted in found]


def sweep(n: int, planted: int, rho: float, *, mixed: bool = False) -> list[list[Predicted]]:
    """Generate all repeats, for all numbers of axes and classes together."""
    cases = [case for case in itertools.product(AXES, CLASSES, range(REPEATS)) if n >= 80 * case[1]]
    return [generated(n, axes, classes, planted, rho, seed, mixed) for axes, classes, seed in cases]


def lifts(found: list[list[Predicted]], wider: float) -> np.ndarray:
    """Compute the lower bound of the lift over chance of the best cue of every repeat."""

    def lift(y: np.ndarray, predicted: np.ndarray, classes: int, reach: float) -> float:
        return (score_predictions(predicted, y, classes, wider * reach).low - 1 / classes) / (1 - 1 / classes)

    return np.array([max(lift(*cue) for cue in cues) for cues in found])


def main() -> None:
    chance = {n: sweep(n, 0, 0.0, mixed=True) for n in SAMPLES}
    wider = min(w for w in FACTORS if all((lifts(found, w) > 0).mean() <= 1 - LEVEL for found in chance.values()))
    none = {n: lifts(sweep(n, 0, 0.0), wider) for n in SAMPLES}
    tells = min(bar for bar in GRID if all((found >= bar).mean() <= FALSE_ALARMS for found in none.values()))

    def share(passed: np.ndarray) -> float:
        return round(float(passed.mean()), 3)

    record: dict[str, Any] = {
        "wider": wider,
        "tells": tells,
        "repeats": {str(n): len(found) for n, found in none.items()},
        "random labels": {
            str(w): {str(n): share(lifts(found, w) > 0) for n, found in chance.items()} for w in (1.0, wider)
        },
        "no cue": {str(n): share(found >= tells) for n, found in none.items()},
        "one cue": {
            str(n): {str(rho): share(lifts(sweep(n, 1, rho), wider) >= tells) for rho in STRENGTHS} for n in SAMPLES
        },
    }
    write_atomic(RECORD, (json.dumps(record, indent=2) + "\n").encode())
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
