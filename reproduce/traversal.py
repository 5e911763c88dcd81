"""Does the top axis of CelebA change gender and not hair? `python reproduce/traversal.py --set data.root=DIR`.

Two classifiers, the referees, are trained on all groups: one for `Male`, one for `Blond_Hair`. They judge images that
VAEs decode while one axis moves. Whatever is missing is trained below `--out`, and finished runs are kept. The record
is reproduce/records/traversal.json, and the page docs/results/traversal.md. `--table` makes only the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import sitar
from sitar.analysis.latents import ordered, posterior_means, shortcut_scores, vae_of
from sitar.analysis.traversal import along, decoded
from sitar.data.types import EvalSplit
from sitar.evaluation.trained_model import TrainedModel
from sitar.files import write_atomic

HERE = Path(__file__).parent
RECORD = HERE / "records" / "traversal.json"
PAGE = HERE.parent / "docs" / "results" / "traversal.md"
SPLIT = "data.partition=first_10k"
ALL_GROUPS = [SPLIT, "data.majority_only=false"]
REFEREES = {
    "male": ["data.label=Male", "data.attribute=Blond_Hair"],
    "blond": ["data.label=Blond_Hair", "data.attribute=Male"],
}
ROWS = {"vae (no labels, as in the paper's figure)": "celeba/vae", "sitar": "celeba/sitar", "control": "celeba/control"}
SEEDS = range(5)
REACH = 2.0  # standard deviations to both sides
MOST = 200  # images of each group
TEXT = """\
# Does the top axis of CelebA change gender and not hair?

The paper shows one beta-VAE on CelebA. Its [axis](../glossary.md#axis) with the highest
[score v](../glossary.md#shortcut-score) changes the apparent gender and leaves the hair largely as it is. The label is
the colour of the hair (`Blond_Hair`), and the [shortcut](../glossary.md#shortcut) is the gender (`Male`). This page
asks whether that is so for the seeds {seeds}.

**How it is measured.** Two classifiers are the referees, one for `Male` and one for `Blond_Hair`. They are trained with
all groups. For a run, test images are encoded, as many from each group. One axis is moved from {reach:g} standard
deviations below its mean to {reach:g} above. All others stay, and both ends are decoded. v is that of the training
split.

- *P* is the mean absolute change of a referee's probability from one end to the other.
- *Share* is the mean change of its log-odds, without the sign, divided by a difference between real images: those with
  and those without the attribute, the other attribute being equal. So the shares of the two referees can be compared.

These would speak against the claim:

- On the top axis the share of `Blond_Hair` is as large as that of `Male`.
- Another axis changes `Male` more than the top axis does.

The referees must be able to read decoded images. Otherwise a small change says nothing. The third table shows their AUC
on reconstructions that nobody moved: 50 is chance, 100 is perfect. Beside it stands the AUC of a logistic regression on
the latent. Where it is high and that of the referee is low, the referee is blind to what the latent holds.

`python reproduce/traversal.py` makes this page from `reproduce/records/traversal.json`.
The runs were made with: {where}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="such as data.root=DIR")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs", "traversal"), help="folder for the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--table", action="store_true", help="make the page from the record")
    options = parser.parse_args()
    if not options.table:
        train_all(options)
        write_atomic(RECORD, measured(options).encode())
    write_atomic(PAGE, render(json.loads(RECORD.read_text(encoding="utf-8"))).encode())


def folder_of(out: Path, preset: str, seed: int) -> Path:
    return out / f"{preset.replace('/', '-')}-seed{seed}"


def train_all(options: argparse.Namespace) -> None:
    """Train the referees and the runs, `workers` at a time. The first error ends it, and a second call continues."""
    jobs = [
        ("celeba/erm", [*ALL_GROUPS, *settings], 0, options.out / f"referee-{name}")
        for name, settings in REFEREES.items()
    ]
    jobs += [
        (preset, [SPLIT], seed, folder_of(options.out, preset, seed))
        for seed in options.seeds
        for preset in ROWS.values()
    ]
    todo = [
        (preset, [*settings, *options.set], seed, folder, options.device) for preset, settings, seed, folder in jobs
    ]
    for done, name in enumerate(in_processes(todo, options.workers), 1):
        print(f"{done}/{len(todo)} {name}", flush=True)


def in_processes(todo: list[tuple[Any, ...]], workers: int) -> Iterator[str]:
    """Train one run after the other, or several at a time, each on one thread of a process of its own."""
    if workers == 1:
        yield from (train(*job) for job in todo)
        return
    spawn = get_context("spawn")  # CUDA cannot start after a fork
    with ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (1,)) as pool:
        for future in as_completed([pool.submit(train, *job) for job in todo]):
            yield future.result()


def train(preset: str, settings: list[str], seed: int, folder: Path, device: str) -> str:
    """Do one run, or take the finished one."""
    sitar.train(preset, overrides=settings, seed=seed, out=folder, device=device, resume=True, progress=False)
    return folder.name


def measured(options: argparse.Namespace) -> str:
    """Measure all runs, and return the record."""
    referees = {name: sitar.load(options.out / f"referee-{name}", device=options.device) for name in REFEREES}
    judges: dict[str, Any] = {name: referee.folder.result()["splits"]["test"] for name, referee in referees.items()}
    keys = ("n", "average", "worst_group")
    runs = []
    for row, preset in ROWS.items():
        for seed in options.seeds:
            model = sitar.load(folder_of(options.out, preset, seed), device=options.device)
            environment = model.folder.environment() or {}
            where = {key: environment.get(key) for key in ("commit", "device", "data_checksum")}
            runs.append({"row": row, "preset": preset, "seed": seed, **measure(model, referees), **where})
            print(row, seed, "done", flush=True)
    judged = {name: {key: _short(found[key]) for key in keys} for name, found in judges.items()}
    lines = ",\n".join("    " + json.dumps(run) for run in runs)
    return f'{{\n  "referees": {json.dumps(judged)},\n  "runs": [\n{lines}\n  ]\n}}\n'


def measure(model: TrainedModel, referees: dict[str, TrainedModel]) -> dict[str, Any]:
    """Move every axis of a run, from the highest v to the lowest, and ask the referees."""
    train = model.data.train
    v = shortcut_scores(posterior_means(model, train.x), train.y.cpu(), len(model.classes))
    x, truth = balanced(model.data.evaluation["test"])
    mu, vae = posterior_means(model, x), vae_of(model)
    real = {name: difference(log_odds(referees[name], x), truth, name) for name in referees}
    still = decoded(vae, mu.unsqueeze(1))[:, 0]
    auc = {name: _short(float(roc_auc_score(truth[name], log_odds(referees[name], still)))) for name in referees}
    latent = {name: _short(in_latent(mu.numpy(), truth[name])) for name in referees}
    axes = []
    for axis in ordered(v):
        deviation, centre = torch.std_mean(mu[:, axis])
        ends = decoded(vae, along(mu, axis, centre + REACH * deviation * torch.tensor([-1.0, 1.0])))
        found: dict[str, Any] = {"axis": axis, "v": _short(float(v[axis])), "deviation": _short(float(deviation))}
        for name, referee in referees.items():
            low, high = (log_odds(referee, ends[:, i]) for i in (0, 1))
            found[f"{name}_p"] = _short(float(np.abs(sigmoid(high) - sigmoid(low)).mean()))
            found[f"{name}_share"] = _short(float(abs((high - low).mean()) / real[name]))
        axes.append(found)
    return {"images": len(x), "auc_on_decoded": auc, "auc_of_latent": latent, "axes": axes}


def balanced(split: EvalSplit) -> tuple[Tensor, dict[str, np.ndarray]]:
    """Return as many images of each group, and who is male and who is blond. The label is the hair."""
    assert split.group is not None
    group = split.group.cpu()
    count = min(MOST, int(torch.bincount(group, minlength=len(split.group_names)).min()))
    if count == 0:
        raise SystemExit("The test split lacks a group, so hair and gender cannot be told apart.")
    index = torch.cat([(group == g).nonzero().squeeze(1)[:count] for g in range(len(split.group_names))])
    blond = split.y.cpu()[index]
    return split.x[index], {"blond": blond.numpy(), "male": (group[index] - 2 * blond).numpy()}


def log_odds(referee: TrainedModel, x: Tensor) -> np.ndarray:
    """Return how sure a referee is that an image has its attribute."""
    logits = referee.logits(x).astype(np.float64)
    return logits[:, 1] - logits[:, 0]


def sigmoid(odds: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(odds / 2))


def difference(odds: np.ndarray, truth: dict[str, np.ndarray], name: str) -> float:
    """Return how far a referee tells real images with and without its attribute apart, the other one being equal."""
    own, (other,) = truth[name], [values for key, values in truth.items() if key != name]
    gaps = [odds[(own == 1) & (other == o)].mean() - odds[(own == 0) & (other == o)].mean() for o in (0, 1)]
    return float(abs(np.mean(gaps)))


def in_latent(mu: np.ndarray, truth: np.ndarray) -> float:
    """Return how well a logistic regression on the latent tells an attribute, on samples that it was not fitted to."""
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(min(5, int(np.bincount(truth).min())), shuffle=True, random_state=0)
    return float(roc_auc_score(truth, cross_val_predict(probe, mu, truth, cv=folds, method="decision_function")))


def _short(value: float) -> float:
    return round(value, 4)


def render(record: dict[str, Any]) -> str:
    """Write the page, from the record alone."""
    runs = record["runs"]
    where = "; ".join(dict.fromkeys(f"{run['device']}, commit {str(run['commit'])[:12]}" for run in runs))
    seeds = ", ".join(map(str, sorted({run["seed"] for run in runs})))
    keys = ("male_p", "blond_p", "male_share", "blond_share")
    head = "`Male`, P | `Blond_Hair`, P | `Male`, share | `Blond_Hair`, share |"
    lines = ["## Over the seeds", "", "A cell is the mean ± the standard deviation over the seeds.", ""]
    lines += [f"| | axis | v | {head}", "|---|---|---|---|---|---|---|"]
    by_row = {row: [run for run in runs if run["row"] == row] for row in dict.fromkeys(run["row"] for run in runs)}
    for row, found in by_row.items():
        places = {
            "highest v": [run["axes"][:1] for run in found],
            "second v": [run["axes"][1:2] for run in found],
            "mean of the others": [run["axes"][2:] for run in found],
        }
        for place, axes in places.items():
            cells = [cell([mean(axis[key] for axis in seed) for seed in axes]) for key in ("v", *keys)]
            lines.append(f"| {row} | {place} | {' | '.join(cells)} |")
    lines += ["", "## Seed by seed", ""]
    lines += ["*Most* is the axis that changes the attribute most, by P. Its place by v is in brackets.", ""]
    lines += [f"| | seed | top axis | v | {head[:-2]} | most `Male` | most `Blond_Hair` |", "|---|" + "---|" * 9]
    for run in runs:
        top = run["axes"][0]
        most = [max(range(len(run["axes"])), key=lambda i, k=key: run["axes"][i][k]) for key in ("male_p", "blond_p")]
        cells = [f"{top[key]:.2f}" for key in ("v", *keys)] + [f"{run['axes'][i]['axis']} ({i + 1}.)" for i in most]
        lines.append(f"| {run['row']} | {run['seed']} | {top['axis']} | {' | '.join(cells)} |")
    lines += ["", "## Can the referees read decoded images?", "", "All values are in percent.", ""]
    lines += ["| | `Male` | `Blond_Hair` |", "|---|---|---|"]
    referees = record["referees"]
    for key, name in (("average", "average"), ("worst_group", "worst group")):
        cells = [f"{100 * referees[who][key]:.1f}" for who in REFEREES]
        lines.append(f"| real test images, accuracy, {name} | {' | '.join(cells)} |")
    for row, found in by_row.items():
        for key, name in (("auc_on_decoded", "reconstructions"), ("auc_of_latent", "latent")):
            cells = [cell([100 * run[key][who] for run in found], 1) for who in REFEREES]
            lines.append(f"| {row}: {name}, AUC | {' | '.join(cells)} |")
    return "\n".join([TEXT.format(seeds=seeds, reach=REACH, where=where), *lines, ""])


def cell(values: list[float], digits: int = 2) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


if __name__ == "__main__":
    main()
