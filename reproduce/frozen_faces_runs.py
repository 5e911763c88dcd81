"""Try kinds of noise, and ways to keep an epoch, on the feature files that frozen_faces.py makes. It runs on a CPU.

A pair of attributes is trained once: label and shortcut have the same training images in both roles, so that one model
answers for both (docs/results/exchange.md). A run is made with the presets of one's own data, `npz/...`.

- *Targeting*: kinds of noise that the package does not have are patched in here (`PATCHES`).
- *Stability*: a run is made again with initial weights that differ by a percent (`again`). Differences in the last
  digits alone do not grow on these small networks. Every epoch is evaluated as it is, and as a mean over the last 5 and
  20 epochs (`train.average_epochs`). The record has what each rule keeps.

    python reproduce/frozen_faces_runs.py FOLDER    makes what the record does not have, and writes it after every run
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import sitar.training.run
from sitar.evaluation.metrics import Predictions, split_metrics
from sitar.evaluation.trained_model import load
from sitar.files import write_atomic
from sitar.functional.correlation import shortcut_score
from sitar.functional.noise import NOISES, Axis, axis_noise
from sitar.locks import locked
from sitar.methods.sitar import SITAR
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.training.averaging import Average
from sitar.training.loop import Loop

RECORD = Path(__file__).parent / "records" / "frozen_faces.json"
PAIRS = ("Blond_Hair_with_Male", "Attractive_with_Smiling", "Black_Hair_with_Male", "Young_with_Smiling")
SEEDS, AGAIN, LITTLE = (0, 1), (1, 2), 1e-2
AVERAGES, WINDOW = (5, 20), 5  # epochs
STABILITY = ("axis, alpha 1",)  # rows that are made again
STRONG = ["method.noise=axis", "method.alpha=1"]
ROWS: dict[str, tuple[str, list[str]]] = {
    "ERM": ("npz/erm", []),
    "control": ("npz/control", []),
    "axis, alpha 1": ("npz/sitar_best", STRONG),
    "swap, alpha 1": ("npz/sitar_best", ["method.noise=swap", "method.alpha=1"]),
    "axis, sharper": ("npz/sitar_best", STRONG),
    "axis, relative": ("npz/sitar_best", STRONG),
    "axis, no gradient into the latent": ("npz/sitar_best", STRONG),
    "direction, alpha 0.1": ("npz/sitar_best", ["method.noise=direction", "method.alpha=0.1"]),
    "axis, top axes": ("npz/sitar_best", STRONG),
}


def _scored(score_of: Callable[[Tensor, Any], Tensor]) -> Callable[..., Tensor]:
    """Return axis noise with another score."""

    def draw(self: Axis, z: Tensor, moments: Any, distribution: Any = "gaussian") -> Tensor:
        return axis_noise(z, score_of(shortcut_score(moments.correlation), moments), distribution)

    return draw


def _stopped(self: SITAR, z: Tensor, y: Tensor, moments: Any) -> dict[str, Tensor]:
    return _classification(self, z.detach(), y, moments)


_classification = SITAR.classification
PATCHES: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "axis, sharper": (Axis, "draw", _scored(lambda v, _: v**2 / v.amax().clamp_min(1e-8))),
    "axis, top axes": (Axis, "draw", _scored(lambda v, _: torch.where(v >= v.amax() / 2, v, 0.0))),
    "axis, relative": (Axis, "draw", _scored(lambda v, moments: v * moments.spread)),
    "axis, no gradient into the latent": (SITAR, "classification", _stopped),
}


class WatchingLoop(Loop):
    """This loop also evaluates means of the weights. Training itself does not see them."""

    def _evaluate(self, phase: Any) -> dict[str, Any]:
        found = super()._evaluate(phase)
        if self.epoch == 1:
            self.averages = {n: Average(n) for n in AVERAGES}
        for n, average in self.averages.items():
            average.add(self.method)
            with average.lent(self.method):
                found |= {f"{split}@{n}": metrics for split, metrics in super()._evaluate(phase).items()}
        return found


@contextmanager
def perturbed(again: int) -> Iterator[None]:
    """Let new models differ a little in their weights."""
    build = sitar.training.run.build_method

    def built(*parts: Any) -> Any:
        method = build(*parts)
        random = torch.Generator().manual_seed(again)
        with torch.no_grad():
            for parameter in method.parameters():
                parameter.mul_(1 + LITTLE * torch.randn(parameter.shape, generator=random))
        return method

    with patch.object(sitar.training.run, "build_method", built if again else build):
        yield


def kept(lines: list[dict[str, Any]], split: str, rule: Callable[[list[float]], float], window: int) -> dict[str, Any]:
    """Return the worst group on test of the epoch that a rule keeps: the highest of a running mean or median on val."""
    values = [line[split.replace("test", "val")]["class_balanced"] for line in lines]
    smooth = [rule(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]
    best = max(range(len(values)), key=lambda i: smooth[i])
    return {"epoch": best + 1, "worst_group": lines[best][split]["worst_group"]}


def both_roles(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Return the metrics on test, and those of the same answers where label and shortcut exchange their roles."""
    stored = folder.predictions()
    y, group, logits = (stored[f"test/{name}"] for name in ("y", "group", "logits"))
    attribute = group - 2 * y
    names, agree = [f"label={a},attribute={b}" for a in (0, 1) for b in (0, 1)], frozenset({(0, 0), (1, 1)})
    found = {}
    for role, (label, other) in {"label": (y, attribute), "exchanged": (attribute, y)}.items():
        metrics = split_metrics(Predictions(logits, label, 2 * label + other, names, None, agree), resamples=0)
        found[role] = {key: metrics[key] for key in ("average", "worst_group", "core_auc")}
    return found


def shares(path: Path) -> dict[str, float]:
    """Read the gate on the latent of a run, for two kinds of noise."""
    model = load(path, "cpu")
    assert isinstance(model.method, SITAR)
    found = {}
    for kind in ("axis", "swap"):
        model.method.noise = NOISES[kind]
        found[kind] = float(model.method.reading(model.data.train).share)
    return found


def make(folder: Path, pair: str, row: str, seed: int, again: int) -> dict[str, Any]:
    """Make one run in a temporary folder, and return what is recorded of it."""
    preset, overrides = ROWS[row]
    watch = row in STABILITY
    files = [f"data.file={folder / pair}.npz", "data.split_key=split", "data.attribute_key=attribute"]
    overrides = [*overrides, *files, f"train.evaluate=[{'val,test' if watch else 'val'}]"]
    with tempfile.TemporaryDirectory() as out:
        run, (owner, name, new) = RunFolder(Path(out) / "run"), PATCHES.get(row, (SITAR, "loss", SITAR.loss))
        loop = WatchingLoop if watch else Loop
        with perturbed(again), patch.object(owner, name, new), patch.object(sitar.training.run, "Loop", loop):
            sitar.training.run.train_config(load_config(preset, overrides, seed), run, device="cpu", progress=False)
        result: Any = run.result()
        lines = run.metrics()
        found = {"pair": pair, "row": row, "seed": seed, "again": again, "epoch": result["selected_epoch"]}
        found |= {"val": result["splits"]["val"]["class_balanced"], **both_roles(run)}
        if row == "control":
            found["gate"] = shares(run.path)
        if watch:
            rules = {"best": (mean, 1), "running mean": (mean, WINDOW), "running median": (median, WINDOW)}
            for split in ("test", *(f"test@{n}" for n in AVERAGES)):
                for name, (rule, window) in rules.items():
                    found[f"{split}, {name}"] = kept(lines, split, rule, window)
                late = [line[split]["worst_group"] for line in lines[len(lines) // 2 :]]
                found[f"{split}, step"] = mean(abs(b - a) for a, b in pairwise(late))
                found[f"{split}, last"] = {"epoch": len(lines), "worst_group": lines[-1][split]["worst_group"]}
    return found


def todo() -> Iterator[tuple[str, str, int, int]]:
    """Name the runs, those that matter first."""
    for seed in SEEDS:
        for row in list(ROWS)[:4]:
            for pair in PAIRS:
                for again in (0, *(AGAIN if row in STABILITY else ())):
                    yield pair, row, seed, again
        for row in list(ROWS)[4:]:
            for pair in PAIRS:
                yield pair, row, seed, 0


def stability(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say how far runs of one seed lie apart, by what is kept of them: means over pairs, and the largest range."""
    found = []
    runs = [run for run in runs if run["row"] in STABILITY and run["seed"] == SEEDS[0]]
    for split, epochs in {"test": 1, **{f"test@{n}": n for n in AVERAGES}}.items():
        for rule in ("best", "running mean", "running median", "last"):
            apart = [[run[f"{split}, {rule}"]["worst_group"] for run in runs if run["pair"] == pair] for pair in PAIRS]
            apart = [values for values in apart if len(values) > 1]
            if apart:
                of = {"sd": mean(map(stdev, apart)), "range": max(max(values) - min(values) for values in apart)}
                of |= {"worst_group": mean(map(mean, apart)), "step": mean(run[f"{split}, step"] for run in runs)}
                found.append({"epochs": epochs, "rule": rule, "reruns": min(map(len, apart)), **of})
    return found


def targeting(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean over both roles of all pairs, for each row that has all pairs, of the first seed."""
    found = []
    for row in ROWS:
        of = [run for run in runs if (run["row"], run["seed"], run["again"]) == (row, SEEDS[0], 0)]
        roles = [run[role] for run in of for role in ("label", "exchanged")]
        if len(of) == len(PAIRS):
            found.append(
                {"row": row, **{key: mean(role[key] for role in roles) for key in ("worst_group", "core_auc")}}
            )
    return found


def write(runs: list[dict[str, Any]]) -> None:
    record = {"stability": stability(runs), "targeting": targeting(runs), "runs": runs}
    write_atomic(RECORD, (json.dumps(record, indent=1) + "\n").encode())


def recorded() -> list[dict[str, Any]]:
    return json.loads(RECORD.read_text())["runs"] if RECORD.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the files that frozen_faces.py has made")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th run from I on"
    )
    options = parser.parse_args()
    i, n = options.part
    torch.set_num_threads(1)
    for what in list(todo())[i::n]:
        known = {(run["pair"], run["row"], run["seed"], run["again"]) for run in recorded()}
        if what in known:
            continue
        found = make(options.folder, *what)
        with locked(RECORD.with_suffix(".lock"), wait=True):
            write([*recorded(), found])
        print(*what, {role: round(100 * found[role]["worst_group"], 1) for role in ("label", "exchanged")}, flush=True)


if __name__ == "__main__":
    main()
