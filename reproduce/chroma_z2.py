"""Does Chroma-VAE remove the shortcut from z2, or scale it down? `python reproduce/chroma_z2.py [RUN ...]`.

Runs of Chroma-VAE on ColorMNIST are given as folders. Without any, they are trained: rho = 0.9 and 1.0, three seeds.
The record is reproduce/records/chroma_z2.json, and the page docs/results/chroma_z2.md. `--table` makes only the page.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import sitar
from sitar.analysis.latents import posterior_means
from sitar.evaluation.trained_model import TrainedModel
from sitar.files import write_atomic
from sitar.run_folder import RunFolder

HERE = Path(__file__).parent
RECORD = HERE / "records" / "chroma_z2.json"
PAGE = HERE.parent / "docs" / "results" / "chroma_z2.md"
PRESET, RHOS, SEEDS = "color_mnist/chroma_vae", (0.9, 1.0), range(3)
NAMES = {
    "colour_in_z1": "colour from z1, fitted where label and colour are not tied",
    "colour_in_z2": "colour from z2, fitted where label and colour are not tied",
    "label_in_z1": "label from z1, fitted where label and colour are not tied",
    "label_in_z2": "label from z2, fitted where label and colour are not tied",
    "colour_in_z1_tied": "colour from z1, fitted on val",
    "colour_in_z2_tied": "colour from z2, fitted on val",
    "label_in_z1_tied": "label from z1, fitted on val",
    "label_in_z2_tied": "label from z2, fitted on val",
    "gap_z1": "distance of the two colours in z1",
    "gap_z2": "distance of the two colours in z2",
    "deviation_z2": "deviation of z2 along an axis (root of the mean variance)",
    "colour_deviation_z2": "deviation of z2 along the direction of the colours",
    "colour_share_z2": "share of this direction in the variance of z2",
    "colour_correlation_z2": "largest correlation of an axis of z2 with the colour",
    "colour_axis_deviation_z2": "deviation of this axis",
    "other_axes_deviation_z2": "deviation of the other axes of z2 (root of the mean variance)",
}
HEADS = {
    "knn": "k-NN on z2, as it is",
    "knn_standardised": "k-NN on standardised z2",
    "logistic": "logistic regression on z2",
    "mlp": "MLP on z2",
}
TEXT = """\
# Does Chroma-VAE's z2 keep a scaled-down shortcut?

[Chroma-VAE](../methods/chroma_vae.md) reserves some latents, z1, for the [shortcut](../glossary.md#shortcut). It
predicts from the others, z2. The paper says that the shortcut is not removed from z2, and only scaled down. k-NN feels
the scale. A parametric head can undo it, and so the robustness would be lost with one. On ColorMNIST the shortcut is
the colour.

These would speak against the claim:

- A linear probe cannot tell the colour from z2. Then the colour is removed.
- The two colours are as far apart in z2 as other differences are. Then the colour is not scaled down.
- k-NN is as good out of distribution on standardised z2 as on z2. Then the scale does not protect it.
- A logistic regression or an MLP on z2 is as good out of distribution as k-NN.

**How it is measured.** The latents are posterior means. A probe is a logistic regression on standardised latents.

- It is fitted on `val` and `val_ood` together, where colour and label are not tied, and scored on `id_test` and
  `ood_test` together. This says what is there.
- It is also fitted on `val`, where colour and label are tied as in training, and scored on `ood_test`. This says what a
  head would take.

The distance of the two colours is that of their means where colour and label are not tied. The direction of the colours
is the line through these means. Heads are fitted on the training split. All but the first read standardised latents.

`python reproduce/chroma_z2.py` makes this page from `reproduce/records/chroma_z2.json`. A cell is the mean ± the
standard deviation over the seeds {seeds}. The runs were made with: {where}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="*", help="run folders of Chroma-VAE on ColorMNIST")
    parser.add_argument("--out", type=Path, default=Path("runs", "chroma_z2"), help="folder for runs that are trained")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of runs to train")
    parser.add_argument("--table", action="store_true", help="make the page from the record")
    options = parser.parse_args()
    if not options.table:
        folders = options.runs or [trained(rho, seed, options) for rho in RHOS for seed in SEEDS]
        rows = []
        for folder in folders:
            rows.append(measure(sitar.load(folder, device=options.device)))
            print(folder, f"colour from z2: {rows[-1]['colour_in_z2']:.2f}", flush=True)
        rows.sort(key=lambda row: (row["rho"], row["seed"]))
        text = ",\n".join("    " + json.dumps(row) for row in rows)
        write_atomic(RECORD, f'{{\n  "runs": [\n{text}\n  ]\n}}\n'.encode())
    write_atomic(PAGE, render(json.loads(RECORD.read_text(encoding="utf-8"))).encode())


def trained(rho: float, seed: int, options: argparse.Namespace) -> RunFolder:
    """Train a run, or take the finished one."""
    return sitar.train(
        PRESET, overrides=[f"data.rho={rho}", *options.set], seed=seed, out=options.out / f"rho{rho}-seed{seed}",
        device=options.device, resume=True, progress=False,
    )  # fmt: skip


def measure(model: TrainedModel) -> dict[str, Any]:
    """Measure one run: what a probe finds in z1 and z2, the scale of the colour in z2, and what heads make of it."""
    parts = {name: latents(model, name) for name in ("val", "val_ood", "id_test", "ood_test")}
    free, test = (
        tuple(np.concatenate([parts[a][i], parts[b][i]]) for i in range(3))
        for a, b in (("val", "val_ood"), ("id_test", "ood_test"))
    )
    first = model.config.method.shortcut_dim  # type: ignore[attr-defined]
    sides = {"z1": slice(0, first), "z2": slice(first, None)}
    found: dict[str, float] = {}
    for side, axes in sides.items():
        for i, what in ((1, "label"), (2, "colour")):
            found[f"{what}_in_{side}"] = score(probe(), free, test, axes, i)
            found[f"{what}_in_{side}_tied"] = score(probe(), parts["val"], parts["ood_test"], axes, i)
        found[f"gap_{side}"] = float(np.linalg.norm(colour_gap(free[0][:, axes], free[2])))
    found |= scale(free[0][:, sides["z2"]], free[2])
    environment = model.folder.environment() or {}
    return {
        "rho": model.config.data.rho,  # type: ignore[attr-defined]
        "seed": model.config.seed,
        **{key: round(value, 4) for key, value in found.items()},
        "heads": heads(model, parts, sides["z2"]),
        **{key: environment.get(key) for key in ("commit", "device", "data_checksum")},
    }


def latents(model: TrainedModel, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the posterior means of a split, the labels and the colours."""
    split = model.data.evaluation[name]
    assert split.group is not None
    colour = split.group - split.y * (len(split.group_names) // len(model.classes))
    return posterior_means(model, split.x).numpy(), split.y.cpu().numpy(), colour.cpu().numpy()


def probe() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def score(model: Any, fit: tuple[np.ndarray, ...], test: tuple[np.ndarray, ...], axes: slice, target: int) -> float:
    """Fit on some samples and return the accuracy on others: of the labels (target 1) or the colours (target 2)."""
    model.fit(fit[0][:, axes], fit[target])
    return float(model.score(test[0][:, axes], test[target]))


def colour_gap(z: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return the way from the mean of one colour to that of the other."""
    return z[colour == 1].mean(0) - z[colour == 0].mean(0)


def scale(z: np.ndarray, colour: np.ndarray) -> dict[str, float]:
    """Compare the scale of the colour in latents with that of the rest."""
    gap = colour_gap(z, colour)
    along = z @ (gap / np.linalg.norm(gap))
    correlation = np.array([abs(np.corrcoef(axis, colour)[0, 1]) if axis.std() > 0 else 0.0 for axis in z.T])
    best = int(correlation.argmax())
    return {
        "deviation_z2": float(np.sqrt(z.var(0).mean())),
        "colour_deviation_z2": float(along.std()),
        "colour_share_z2": float(along.var() / z.var(0).sum()),
        "colour_correlation_z2": float(correlation[best]),
        "colour_axis_deviation_z2": float(z[:, best].std()),
        "other_axes_deviation_z2": float(np.sqrt(np.delete(z.var(0), best).mean())),
    }


def heads(model: TrainedModel, parts: dict[str, Any], axes: slice) -> dict[str, dict[str, float]]:
    """Fit heads on z2 of the training split. Return their accuracies, in and out of distribution."""
    train = model.data.train
    fit = posterior_means(model, train.x).numpy(), train.y.cpu().numpy()
    k = model.config.method.neighbours  # type: ignore[attr-defined]
    made = {
        "knn": KNeighborsClassifier(k),
        "knn_standardised": make_pipeline(StandardScaler(), KNeighborsClassifier(k)),
        "logistic": probe(),
        "mlp": make_pipeline(
            StandardScaler(), MLPClassifier((model.config.model.hidden,), early_stopping=True, random_state=0)
        ),
    }
    found: dict[str, dict[str, float]] = {}
    for name, head in made.items():
        head.fit(fit[0][:, axes], fit[1])
        tests = {split: parts[split] for split in ("id_test", "ood_test")}
        found[name] = {split: round(float(head.score(z[:, axes], y)), 4) for split, (z, y, _) in tests.items()}
    return found


def render(record: dict[str, Any]) -> str:
    """Write the page, from the record alone."""
    runs = record["runs"]
    rhos = sorted({run["rho"] for run in runs})
    columns = [[run for run in runs if run["rho"] == rho] for rho in rhos]
    where = "; ".join(dict.fromkeys(f"{run['device']}, commit {str(run['commit'])[:12]}" for run in runs))
    seeds = ", ".join(map(str, sorted({run["seed"] for run in runs})))
    titles = " | ".join(f"rho = {rho}" for rho in rhos)
    lines = ["## What is in z1 and z2", "", "Accuracies of probes are in percent.", ""]
    lines += [f"| | {titles} |", "|---|" + "---|" * len(rhos)]
    for key, name in NAMES.items():
        percent = key.startswith(("colour_in", "label_in"))
        cells = [cell([run[key] for run in column], percent) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "## What heads make of z2", "", "Accuracies of the label are in percent, ID / OOD.", ""]
    lines += [f"| | {titles} |", "|---|" + "---|" * len(rhos)]
    for key, name in HEADS.items():
        cells = [
            " / ".join(cell([run["heads"][key][split] for run in column], True) for split in ("id_test", "ood_test"))
            for column in columns
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([TEXT.format(where=where, seeds=seeds), *lines, ""])


def cell(values: list[float], percent: bool) -> str:
    factor, digits = (100, 1) if percent else (1, 3)
    spread = f" ± {factor * stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{factor * mean(values):.{digits}f}{spread}"


if __name__ == "__main__":
    main()
