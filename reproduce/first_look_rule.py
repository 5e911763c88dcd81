"""Choose the threshold of the first look of `sitar audit` on generated data. No dataset is used.

As in audit_rule.py, every axis tells a little about the label, and a cue is one more axis, which agrees with the label
with probability rho. The cues of a first look are axes, and groups of five axes, as a corner of an image is five
numbers. The threshold is the lowest one that at most 1 % of the data without a cue pass. This must hold for every
number of samples. Data whose label is drawn at random is tried beside it: there, nothing may be better than chance.

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

from sitar.analysis.audit.cues import Cue, score_cues

RECORD = Path(__file__).parent / "records" / "first_look_rule.json"
SAMPLES = (100, 400, 1000, 4000)
AXES, CLASSES, STRENGTHS = (12, 30, 60), (2, 5), (0.7, 0.8, 0.9, 1.0)
REPEATS = 20
GROUP = 5  # axes that are one cue


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


def lifts(n: int, axes: int, classes: int, planted: int, rho: float, seed: int, *, mixed: bool = False) -> list[float]:
    """Compute the lower bound of the lift over chance: the best of all cues, and that of the planted one."""
    random = torch.Generator().manual_seed(seed)
    while True:
        mu, y = latents(n, axes + planted, classes, planted, rho, random)
        if torch.bincount(y, minlength=classes).min() >= 20 or n < 40 * classes:
            break
    if mixed:
        y = y[torch.randperm(n, generator=random)]
    found = score_cues(cues_of(mu.double().numpy(), planted), y.numpy(), classes)
    low = [(score.low - 1 / classes) / (1 - 1 / classes) for score in found]
    return [max(low), low[-1]]


def sweep(n: int, planted: int, rho: float, *, mixed: bool = False) -> np.ndarray:
    """Compute the bounds of every repeat (repeat, 2), for all numbers of axes and classes together."""
    cases = [case for case in itertools.product(AXES, CLASSES, range(REPEATS)) if n >= 40 * case[1]]
    return np.array([lifts(n, axes, classes, planted, rho, seed, mixed=mixed) for axes, classes, seed in cases])


def main() -> None:
    none = {n: sweep(n, 0, 0.0) for n in SAMPLES}
    chance = {n: sweep(n, 0, 0.0, mixed=True) for n in SAMPLES}
    tells = min(bar for bar in GRID if all((found[:, 0] >= bar).mean() <= FALSE_ALARMS for found in none.values()))

    def share(passed: np.ndarray) -> float:
        return round(float(passed.mean()), 3)

    record: dict[str, Any] = {
        "tells": tells,
        "repeats": {str(n): len(found) for n, found in none.items()},
        "no cue, tells": {str(n): share(found[:, 0] >= tells) for n, found in none.items()},
        "labels at random, better than chance": {str(n): share(found[:, 0] > 0) for n, found in chance.items()},
        "one cue, tells": {
            str(n): {str(rho): share(sweep(n, 1, rho)[:, 1] >= tells) for rho in STRENGTHS} for n in SAMPLES
        },
    }
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
