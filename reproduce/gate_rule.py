"""Choose the threshold of SITAR's gate on generated latents. No dataset is used.

We know of generated latents what the core is and what the shortcut is, and can draw test samples on which the shortcut
tells nothing. There only what a model knows of the core counts, and a guess has 50 %. A probe is fitted to the latent
as it is, and to the latent under swap noise. The noise gains the difference of their accuracies on these samples.

- Without a shortcut noise can only cost. The threshold is the lowest one at which at most 5 % of the latents without a
  shortcut open the gate. This must hold for every kind of core and every number of axes, with as many samples as the
  gate reads.
- How often the gate opens for a shortcut, and what the noise gains there, is reported. It decides nothing.

    python reproduce/gate_rule.py    writes reproduce/records/gate_rule.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from sitar.files import write_atomic
from sitar.functional.correlation import label_moments
from sitar.functional.gate import MOST_SAMPLES, read_gate
from sitar.functional.noise import NOISES

RECORD = Path(__file__).parent / "records" / "gate_rule.json"
SAMPLES, REPEATS, AXES = MOST_SAMPLES, {True: 2, False: 20}, (10, 16, 32)  # repeats with a shortcut, and without
FALSE_ALARMS = 0.05
AGREES = (0.7, 0.8, 0.9, 1.0)
RIDGE = 1.0
GRID = [round(0.05 * i, 2) for i in range(21)]
Core = Literal["bent", "mixed", "straight", "none"]
CORES: tuple[Core, ...] = get_args(Core)


class World(NamedTuple):
    """Says what latents are like: whether the core is linear in them, and how often a shortcut agrees with the label.

    A shortcut lies on one axis, far apart. A `copied` one also decides how far other axes spread, as a colour decides
    in which channel a shape varies. `agrees` is None where there is no shortcut.
    """

    core: Core
    agrees: float | None
    copied: bool = False


WORLDS = [
    *(World(core, None) for core in ("bent", "mixed", "straight")),
    *(World(core, agrees, copied) for copied in (False, True) for core in CORES for agrees in AGREES),
]


def draw(world: World, axes: int, shifted: bool, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw latents and labels. In shifted ones the shortcut tells nothing."""
    y = torch.randint(2, (SAMPLES,), generator=random)
    sign = 2.0 * y - 1
    noisy = torch.rand(SAMPLES, generator=random) < 0.15
    told = torch.where(noisy, -sign, sign).double()  # what the core shows: some labels are wrong
    mu = torch.randn(SAMPLES, axes, generator=random, dtype=torch.float64)
    part = axes // 3
    if world.core in ("bent", "mixed"):
        mu[:, 1 : 1 + part] *= torch.where(told > 0, 2.0, 0.4).unsqueeze(1)
    if world.core in ("straight", "mixed"):
        mu[:, 1 : 1 + part] += 0.8 * told.unsqueeze(1)
    if world.agrees is not None:
        agrees = 0.5 if shifted else world.agrees
        shown = torch.where(torch.rand(SAMPLES, generator=random) < agrees, sign, -sign).double().unsqueeze(1)
        mu[:, :1] += 3 * shown
        if world.copied:
            mu[:, 1 + part : 1 + 2 * part] *= torch.where(shown > 0, 3.0, 0.3)
    return mu, y


def measure(world: World, axes: int, seed: int) -> dict[str, float]:
    """Compute the share of the gate, and the accuracies with and without noise on samples with the shift."""
    random = torch.Generator().manual_seed(seed)
    mu, y = draw(world, axes, False, random)
    test, test_y = draw(world, axes, True, random)
    moments, covariance = label_moments(mu, y, 2), torch.cov(mu.T, correction=0)
    swap = NOISES["swap"]
    reading = read_gate(mu, y, 2, swap.suspects(moments, covariance.float()).double(), covariance)
    order = torch.randperm(SAMPLES, generator=random)
    mu, y = mu[order], y[order]
    noisy = mu + swap.draw(mu, moments)
    return {
        "share": float(reading.share),
        "without": accuracy(mu, y, test, test_y),
        "with": accuracy(noisy, y, test, test_y),
    }


def accuracy(x: Tensor, y: Tensor, test: Tensor, test_y: Tensor) -> float:
    """Fit a kernel ridge regression, and return its accuracy on test samples."""
    width = torch.cdist(x, x).square().median()
    kernel = torch.exp(-torch.cdist(x, x).square() / width) + RIDGE * torch.eye(len(x), dtype=x.dtype)
    weights = torch.linalg.solve(kernel, 2.0 * y.double() - 1)
    predicted = torch.exp(-torch.cdist(test, x).square() / width) @ weights > 0
    return float((predicted == (test_y == 1)).double().mean())


def main() -> None:
    torch.set_num_threads(1)
    found = {
        (world, axes): [measure(world, axes, seed) for seed in range(REPEATS[world.agrees is not None])]
        for world in WORLDS
        for axes in AXES
    }

    def opened(runs: Sequence[dict[str, float]], tau: float) -> float:
        return mean(run["share"] >= tau for run in runs)

    without = [runs for (world, _), runs in found.items() if world.agrees is None]
    tau = min(bar for bar in GRID if all(opened(runs, bar) <= FALSE_ALARMS for runs in without))

    def summary(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
        shares = sorted(run["share"] for run in runs)
        return {
            "latents": len(runs),
            "shares": [round(shares[i], 3) for i in (0, len(shares) // 2, -1)],  # lowest, median, highest
            "open": round(opened(runs, tau), 3),
            "without_noise": round(mean(run["without"] for run in runs), 3),  # accuracy
            "with_noise": round(mean(run["with"] for run in runs), 3),
        }

    worlds = [{**world._asdict(), "axes": axes, **summary(runs)} for (world, axes), runs in found.items()]
    record = {"tau": tau, "false_alarms": FALSE_ALARMS, "worlds": worlds}
    write_atomic(RECORD, (json.dumps(record, indent=2) + "\n").encode())
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
