"""Choose the thresholds of `sitar audit` on generated latents. No dataset is used.

We know of generated latents whether they hold a cue. Every axis tells a little about the label. A cue is one more axis,
which agrees with the label with probability rho. A copied cue lies on two axes.

- The threshold for "stands out" is the lowest one that at most 1 % of the latents without a cue pass. This must hold
  for every number of samples.
- The threshold for the lead over the next axis is the one that best separates one cue from a copied cue.

    python reproduce/audit_rule.py    writes reproduce/records/audit_rule.json
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sitar.analysis.audit.scores import accuracy, resample
from sitar.analysis.audit.verdict import above_chance, least_lead
from sitar.files import write_atomic

RECORD = Path(__file__).parent / "records" / "audit_rule.json"
HELD_OUT = (40, 100, 400, 1000)  # held-out samples for every two classes
AXES, CLASSES, STRENGTHS = (5, 10, 30), (2, 5), (0.6, 0.7, 0.8, 0.9, 1.0)
REPEATS, RESAMPLES = 40, 200
FALSE_ALARMS = 0.01
GRID = [round(0.05 * i, 2) for i in range(1, 20)]


def latents(n: int, axes: int, classes: int, cues: int, rho: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Generate axes that each tell a little about a partly flipped label, and `cues` axes that agree with the label."""
    core = torch.randn(n, axes - cues, generator=random)
    direction = torch.randn(axes - cues, classes, generator=random).sign()
    direction *= 0.5 + torch.rand(axes - cues, classes, generator=random)
    score = core @ direction
    y = (score[:, 0] > 0).long() if classes == 2 else score.argmax(1)
    noisy = torch.rand(n, generator=random) < 0.25 * torch.rand((), generator=random)
    y = torch.where(noisy, torch.randint(classes, (n,), generator=random), y)
    follows = torch.rand(n, generator=random) < rho
    other = (y + torch.randint(1, classes, (n,), generator=random)) % classes
    distance = 3 + 3 * torch.rand((), generator=random)
    cue = torch.where(follows, y, other).float().unsqueeze(1) * distance + torch.randn(n, cues, generator=random)
    return torch.cat([core, cue], 1), y


def bounds(n: int, axes: int, classes: int, cues: int, rho: float, seed: int) -> tuple[float, float, float]:
    """Compute the lower and the upper bound of the lift of the best axis, and the lower bound of its lead."""
    random = torch.Generator().manual_seed(seed)
    held_out = n * classes // 2
    while True:
        mu, y = latents(5 * held_out, axes, classes, cues, rho, random)
        if torch.bincount(y[:held_out], minlength=classes).min() >= 2:
            break
    train, test = slice(held_out, None), slice(held_out)
    weight = resample(y[test], RESAMPLES, seed)
    found = accuracy(mu[train], y[train], mu[test], y[test], classes, weight)
    lift = above_chance(found, classes)
    low, high = lift.interval()[:, lift.value.argmax()].tolist()
    return low, high, least_lead(lift)


def sweep(n: int, cues: int, rho: float) -> Tensor:
    """Compute the bounds of every repeat, shape (repeat, 3), for all numbers of axes and classes together."""
    cases = itertools.product(AXES, CLASSES, range(REPEATS))
    return torch.tensor([bounds(n, axes, classes, cues, rho, seed) for axes, classes, seed in cases])


def main() -> None:
    none = {n: sweep(n, 0, 0.0) for n in HELD_OUT}
    cue = {n: {rho: sweep(n, 1, rho) for rho in STRENGTHS} for n in HELD_OUT}
    copied = {n: sweep(n, 2, 0.9) for n in HELD_OUT}

    lift = min(bar for bar in GRID if all(float((found[:, 0] >= bar).double().mean()) <= FALSE_ALARMS
                                          for found in none.values()))  # fmt: skip
    large = [n for n in HELD_OUT if n >= 400]

    def mistakes(bar: float) -> float:
        missed = sum(float((cue[n][0.9][:, 2] < bar).double().mean()) for n in large)
        return missed + sum(float((copied[n][:, 2] >= bar).double().mean()) for n in large)

    gap = min(GRID, key=mistakes)

    def rates(found: Tensor) -> dict[str, float]:
        out, ahead = found[:, 0] >= lift, found[:, 2] >= gap
        kinds = {"one": out & ahead, "several": out & ~ahead, "none": found[:, 1] < lift}
        shares = {kind: round(float(members.double().mean()), 3) for kind, members in kinds.items()}
        return shares | {"unclear": round(1 - sum(shares.values()), 3)}

    record: dict[str, Any] = {
        "lift": lift,
        "gap": gap,
        "repeats": REPEATS * len(AXES) * len(CLASSES),
        "no cue": {str(n): rates(found) for n, found in none.items()},
        "one cue": {str(n): {str(rho): rates(f) for rho, f in found.items()} for n, found in cue.items()},
        "a copied cue, rho 0.9": {str(n): rates(found) for n, found in copied.items()},
    }
    write_atomic(RECORD, (json.dumps(record, indent=2) + "\n").encode())
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
