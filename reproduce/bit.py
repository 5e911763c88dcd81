"""What do a few answers buy? Measure `sitar choose` and `sitar refit` on the tasks of the exchange benchmark.

A task is a column of exchange.yaml, and its finished runs are the candidates. Images from where the model will be used
are `val_ood` of the data, which no candidate has seen. Their labels stand for the answers of a person.

- `choose` is given 20 answers, and `refit` 50, in the order of `sitar ask`.

Both are drawn five times for each seed. All of them are scored on the test split, which has no image of `val_ood`.

Two tasks with the same two attributes have the same images in the same classes, so their runs are the same models. The
runs of one role therefore serve both. What the candidates compute of all images is written to files once, on a GPU. The
answers are then measured without one. After a rule has changed, remove the record and measure again.

    python reproduce/run.py exchange --set data.root=DIR --workers N    makes the runs (use a GPU)
    python reproduce/bit.py --extract --workers N                       writes a file for each pair and seed
    python reproduce/bit.py --workers N                                 writes reproduce/records/bit.json and the page
    python reproduce/bit.py --table                                     makes only the page again

Every pair and seed is recorded when it is done, and a stopped measurement continues with the same command.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import records
import torch
from numpy.typing import NDArray

from sitar.analysis.answers import Answer, Answers
from sitar.analysis.ask.candidates import Pool
from sitar.analysis.ask.choosing import choose
from sitar.analysis.ask.next_image import Order
from sitar.analysis.refit.last_layer import Features, reduce
from sitar.analysis.refit.last_layer import choose as choose_layer
from sitar.analysis.refit.refit import KINDS
from sitar.data.types import in_batches
from sitar.evaluation.metrics import Predictions, split_metrics
from sitar.evaluation.trained_model import TrainedModel
from sitar.files import read_npz, to_npz, write_atomic
from sitar.methods.refit import RefitInputs
from sitar.run_folder import RunFolder

TABLE, NAME = "exchange", "bit"
ORACLE = "oracle"  # how the row begins that is no candidate
TO_CHOOSE, TO_REFIT, DRAWS = 20, 50, 5
FROM, ON = "val_ood", "test"
BEST = "the best candidate of each task (oracle)"
CHOOSE, REFIT = f"choose, {TO_CHOOSE} answers", f"refit, {TO_REFIT} answers"
METRICS = {"worst_group": "worst group", "core_auc": "core AUC"}
MADE = ("commit", "device")  # of a run, as its file says
CLASSES = ("0", "1")
GROUPS = ("00", "01", "10", "11")  # class and attribute


def candidates(table: dict[str, Any]) -> list[str]:
    return [row for row in table["rows"] if not row.startswith(ORACLE)]


def pairs(table: dict[str, Any]) -> dict[str, str]:
    """Return the second task of each pair by its first: LABEL with SHORTCUT, and SHORTCUT with LABEL."""
    found: dict[str, str] = {}
    for column in table["columns"]:
        label, shortcut = column.split(" with ")
        if column not in found.values():
            found[column] = f"{shortcut} with {label}"
    if missing := set(found.values()) - set(table["columns"]):
        raise SystemExit(f"{TABLE} has no column {min(missing)!r}.")
    return found


def file_of(folder: Path, column: str, seed: int) -> Path:
    return folder / f"{column.replace(' ', '-')}_{seed}.npz"


def extract(column: str, seed: int, folders: Sequence[Path], out: Path, device: str) -> str:
    """Write what the candidates of one pair and seed compute of all images. Features are kept in half precision.

    Wide ones are reduced to principal components, as a refit reduces them.
    """
    torch.set_num_threads(1)
    first = TrainedModel(RunFolder(folders[0]), device)
    others = [TrainedModel(RunFolder(folder), device, data=first.data) for folder in folders[1:]]
    data, splits = first.data, [first.data.evaluation[name] for name in (FROM, ON)]
    found: dict[str, Any] = {"y": data.train.y.cpu().numpy()}
    environment = first.folder.environment() or {}
    found |= {key: np.array(str(environment.get(key))) for key in MADE}
    found |= {f"group_{name}": split.group.cpu().numpy() for name, split in zip((FROM, ON), splits, strict=True)}
    for number, model in enumerate([first, *others]):
        found |= {f"logits_{name}_{number}": model.logits(s.x) for name, s in zip((FROM, ON), splits, strict=True)}
        readable = RefitInputs(model.method)
        parts = [
            in_batches(readable.all, x, model.device, model.method.evaluation_batch).cpu().double().numpy()
            for x in (data.train.x, *(split.x for split in splits))
        ]
        ends = np.cumsum(list(readable.widths.values()))
        for kind, end, width in zip(readable.widths, ends, readable.widths.values(), strict=True):
            if kind in KINDS:
                train, new, test = (part[:, end - width : end] for part in parts)
                reduced, axes = reduce(Features(train, found["y"], new, new))
                test = test if axes is None else test @ axes.T
                for name, values in (("train", reduced.train), (FROM, reduced.new), (ON, test)):
                    found[f"{kind}_{name}_{number}"] = values.astype(np.float16)
    file = file_of(out, column, seed)
    write_atomic(file, to_npz(found))
    return file.name


class Task(NamedTuple):
    """A task is what the candidates compute of its images, with the class and the attribute of each."""

    rows: Sequence[str]
    y: NDArray[np.int64]
    new: NDArray[np.int64]
    """Classes of the images that can be asked about."""
    test: NDArray[np.int64]
    attribute: NDArray[np.int64]
    """The attribute of the test images."""
    new_logits: NDArray[np.float64]
    test_logits: NDArray[np.float64]
    features: list[tuple[str, str, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]
    """Row, kind, and features of the training, new and test images."""

    @classmethod
    def read(cls, file: Path, rows: Sequence[str], exchanged: bool) -> Task:
        """Read one role of a pair. Where the roles are exchanged, the attribute is the class."""
        found = read_npz(file)
        group, new_group = found[f"group_{ON}"].astype(np.int64), found[f"group_{FROM}"].astype(np.int64)
        classes, attribute = (group % 2, group // 2) if exchanged else (group // 2, group % 2)
        numbers = range(len(rows))
        kinds = [(n, kind) for n in numbers for kind in KINDS if f"{kind}_train_{n}" in found]
        return cls(
            rows, found["y"].astype(np.int64), new_group % 2 if exchanged else new_group // 2, classes, attribute,
            *(np.stack([found[f"logits_{name}_{n}"] for n in numbers]).astype(float) for name in (FROM, ON)),
            features=[
                (rows[n], kind, *(found[f"{kind}_{name}_{n}"].astype(float) for name in ("train", FROM, ON)))
                for n, kind in kinds
            ],
        )  # fmt: skip

    def score(self, logits: NDArray[np.float64]) -> dict[str, float | None]:
        """Return the metrics of logits of the test images."""
        metrics = split_metrics(Predictions(logits, self.test, 2 * self.test + self.attribute, GROUPS), resamples=0)
        return {name: metrics[name] for name in METRICS}

    def pool(self) -> Pool:
        names = [str(place) for place in range(len(self.new))]
        return Pool(list(self.rows), list(self.rows), CLASSES, names, self.new_logits.argmax(2))


def measure(file: Path, columns: Sequence[str], seed: int, rows: Sequence[str]) -> list[dict[str, Any]]:
    """Measure both tasks of a pair with one seed: every candidate, and what the answers make of them in every draw."""
    torch.set_num_threads(1)
    made = {key: str(found[key]) for found in [read_npz(file)] for key in MADE if key in found}
    return [
        {"column": column, "seed": seed, **made, **measure_task(Task.read(file, rows, exchanged))}
        for column, exchanged in zip(columns, (False, True), strict=True)
    ]


def measure_task(task: Task) -> dict[str, Any]:
    """Measure one task: the seed of a draw is its number."""
    fixed, pool = [task.score(logits) for logits in task.test_logits], task.pool()
    chosen, refitted = [], []
    for draw in range(DRAWS):
        questions = _questions(pool, draw)
        answers = [
            Answer(pool.names[question.image], CLASSES[task.new[question.image]], question.why_asked,
                   question.probability)
            for question in questions[:TO_CHOOSE]
        ]  # fmt: skip
        best = pool.runs.index(choose(pool, Answers(answers)).chosen.run)
        chosen.append({"row": task.rows[best], **fixed[best]})
        asked = np.array([question.image for question in questions])
        sets = [Features(train, task.y, new[asked], new) for _, _, train, new, _ in task.features]
        choice = choose_layer(sets, task.new[asked], len(CLASSES))
        row, kind, *_, test = task.features[choice.setting.features]
        refitted.append({"row": row, "features": kind, **task.score(choice.layer.logits(test))})
    return {"fixed": dict(zip(task.rows, fixed, strict=True)), "choose": chosen, "refit": refitted}


def _questions(pool: Pool, seed: int) -> list[Any]:
    """Return the first questions that `sitar ask` would ask."""
    order, asked = Order(pool.disagree, seed), []
    while len(asked) < TO_REFIT:
        asked += order.next([question.image for question in asked], len(asked), most=1)
    return asked


def means(runs: Sequence[dict[str, Any]], metric: str) -> dict[str, float]:
    """Return the mean over tasks, in percent, of every candidate and of what answers make of them.

    The best of each task is the candidate with the highest mean over seeds there: a choice without error.
    """
    columns = list(dict.fromkeys(run["column"] for run in runs))
    rows = list(runs[0]["fixed"])

    def of_task(column: str, row: str) -> float:
        return mean(run["fixed"][row][metric] for run in runs if run["column"] == column)

    def answered(column: str, what: str) -> float:
        return mean(draw[metric] for run in runs if run["column"] == column for draw in run[what])

    found = {row: [of_task(column, row) for column in columns] for row in rows}
    found[BEST] = [max(of_task(c, row) for row in rows) for c in columns]
    found[CHOOSE] = [answered(column, "choose") for column in columns]
    found[REFIT] = [answered(column, "refit") for column in columns]
    return {name: 100 * mean(values) for name, values in found.items()}


def render(record: Mapping[str, Any] | None = None) -> str:
    """Write the page, from the record alone."""
    runs, left_out = record["runs"] if record else [], records.load_table(TABLE).get("left_out", [])
    counted = [run for run in runs if run["column"] not in left_out]
    made = dict.fromkeys(f"{run['device']}, commit {run['commit'][:12]}" for run in runs if "commit" in run)
    parts = [TEXT, f"The runs were made with: {'; '.join(made)}.\n"] if made else [TEXT]
    if not counted:
        return "\n".join([*parts, f"It was {records.NOT_RUN}.", ""])
    values = {metric: means(counted, metric) for metric in METRICS}
    tasks = sorted({run["column"] for run in counted})
    parts += [f"The mean over {len(tasks)} tasks, in percent:", ""]
    parts += [f"| | {' | '.join(METRICS.values())} |", "|---|---|---|"]
    parts += [
        f"| {name} | {' | '.join(f'{values[metric][name]:.1f}' for metric in METRICS)} |"
        for name in values["worst_group"]
    ]
    parts += ["", _verdict(counted), "", *_tasks(runs, left_out), ""]
    return "\n".join(parts)


def _verdict(runs: Sequence[dict[str, Any]]) -> str:
    """Say what the answers gain over the better fixed candidate, and on how many tasks they do not."""
    rows, columns = list(runs[0]["fixed"]), list(dict.fromkeys(run["column"] for run in runs))
    wholes = {metric: means(runs, metric) for metric in METRICS}
    fixed = max(rows, key=lambda row: wholes["worst_group"][row])
    gains = {metric: whole[REFIT] - whole[fixed] for metric, whole in wholes.items()}
    tasks = [means([run for run in runs if run["column"] == column], "worst_group") for column in columns]
    below = sum(task[REFIT] < task[fixed] for task in tasks)
    regret = wholes["worst_group"][BEST] - wholes["worst_group"][CHOOSE]
    core = wholes["core_auc"]
    knows = max(rows, key=lambda row: core[row])
    under = sum(task[REFIT] < task[BEST] for task in tasks)
    return (
        f"The candidate with the best worst group on average is {fixed}. Over it, refit gains "
        f"{gains['worst_group']:+.1f} points of worst group and {gains['core_auc']:+.1f} of core AUC. It is below it "
        f"on {below} of {len(columns)} tasks. Choose is {regret:.1f} points of worst group below the best of each task."
        f" Refit is below that one on {under} of {len(columns)} tasks."
        f"\n\nThe candidate with the best core AUC on average is {knows}. Beside it, refit has "
        f"{core[REFIT] - core[knows]:+.1f} points of core AUC."
    )


def _tasks(runs: Sequence[dict[str, Any]], left_out: Sequence[str]) -> list[str]:
    """Write the table of worst groups, a line for each task."""
    rows = list(means(runs, "worst_group"))
    lines = ["Worst group of every task, in percent:", "", f"| | {' | '.join(rows)} |", "|---|" + "---|" * len(rows)]
    for column in dict.fromkeys(run["column"] for run in runs):
        values = means([run for run in runs if run["column"] == column], "worst_group")
        mark = " (for tuning)" if column in left_out else ""
        lines.append(f"| {column}{mark} | {' | '.join(f'{values[row]:.1f}' for row in rows)} |")
    return lines


TEXT = f"""# What a few answers buy

Label and shortcut are interchangeable where no training image contradicts the shortcut. Then a few answers about images
from where the model will be used decide ([refit](../refit.md)). The tasks are those of the [exchange
benchmark](exchange.md), and runs of its rows, trained again, are the candidates. The runs of a pair serve both of its
tasks, so the two are no independent evidence. `choose` has {TO_CHOOSE} answers in the order of `sitar ask`, and `refit`
has {TO_REFIT}. Each is the mean of {DRAWS} draws for every seed. Tasks for tuning do not count in the mean, and have
fewer seeds.

`python reproduce/bit.py` makes this page from `reproduce/records/bit.json`.
"""


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=Path, default=Path("runs", "reproduce", TABLE), help="folder with the runs")
    parser.add_argument("--features", type=Path, default=Path("runs", "reproduce", NAME), help="folder for the files")
    parser.add_argument("--extract", action="store_true", help="write the files of the runs, and measure nothing")
    parser.add_argument("--workers", type=int, default=1, help="number of processes that work at the same time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true", help="only make the page again from the record")
    options = parser.parse_args(words)
    table, record = records.load_table(TABLE), records.record_path(NAME)
    if options.extract:
        extract_all(table, options)
        return
    runs: list[dict[str, Any]] = json.loads(record.read_text(encoding="utf-8"))["runs"] if record.exists() else []
    if not options.table:
        runs = measure_all(table, runs, options)
    page = records.page_path(NAME)
    write_atomic(page, render({"runs": runs}).encode())
    print(f"Wrote {page}")


def extract_all(table: dict[str, Any], options: argparse.Namespace) -> None:
    """Write a file for each pair and seed that has the runs of its first role, and no file yet."""
    rows, folders = candidates(table), {}
    for job in records.jobs(table):
        folders[job["column"], job["seed"], job["row"]] = options.runs / job["folder"]
    options.features.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        jobs = []
        for column in pairs(table):
            for seed in table["seeds"]:
                paths = [folders[column, seed, row] for row in rows]
                if all(RunFolder(p).is_done for p in paths) and not file_of(options.features, column, seed).exists():
                    jobs.append(pool.submit(extract, column, seed, paths, options.features, options.device))
        for number, job in enumerate(as_completed(jobs), 1):
            print(f"{number}/{len(jobs)} {job.result()}", flush=True)


def measure_all(table: dict[str, Any], runs: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every pair and seed that has a file and no record yet, and record it."""
    rows, order = candidates(table), list(table["columns"])
    done = {(run["column"], run["seed"]) for run in runs}
    todo = [(both, seed, file_of(options.features, both[0], seed)) for both in pairs(table).items()
            for seed in table["seeds"] if (both[0], seed) not in done]  # fmt: skip
    ready = [(both, seed, file) for both, seed, file in todo if file.exists()]
    print(f"{len(ready)} of {len(todo)} pairs and seeds have a file.", flush=True)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(measure, file, both, seed, rows) for both, seed, file in ready]
        for number, job in enumerate(as_completed(jobs), 1):
            runs += job.result()
            print(f"{number}/{len(jobs)} {runs[-1]['column']}, seed {runs[-1]['seed']}", flush=True)
            runs.sort(key=lambda run: (order.index(run["column"]), run["seed"]))
            records.write_record(NAME, runs, {})
    return runs


if __name__ == "__main__":
    main()
