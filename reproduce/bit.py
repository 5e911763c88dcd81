"""What do a few answers buy? Measure `sitar choose` and `sitar refit` on the tasks of the exchange benchmark.

A task is a column of exchange.yaml, and its finished runs are the candidates. Images from where the model will be used
are `val_ood` of the data, which no candidate has seen. Their labels stand for the answers of a person.

- `choose` is given 20 answers, asked in the order of `sitar ask`.
- `refit` is given 50 answers about images that are drawn at random.

Both are drawn five times for each seed. All of them are scored on the test split, which has no image of `val_ood`.

    python reproduce/run.py exchange --set data.root=DIR --workers N    makes the runs (use a GPU)
    python reproduce/bit.py --workers N                                 writes reproduce/records/bit.json and the page
    python reproduce/bit.py --table                                     makes only the page again

Every task and seed is recorded when it is done, and a stopped measurement continues with the same command.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import records
import torch

from sitar.analysis.answers import Answer, Answers
from sitar.analysis.ask.candidates import Pool
from sitar.analysis.ask.choosing import choose
from sitar.analysis.ask.next_image import Order
from sitar.analysis.refit.refit import fit
from sitar.evaluation.inputs import Inputs
from sitar.evaluation.metrics import Predictions, split_metrics
from sitar.evaluation.predict import predict_split
from sitar.evaluation.trained_model import TrainedModel
from sitar.files import write_atomic
from sitar.progress import unwatched
from sitar.run_folder import RunFolder

TABLE, NAME = "exchange", "bit"
ORACLE = "oracle"  # how the row begins that is no candidate
TO_CHOOSE, TO_REFIT, DRAWS = 20, 50, 5
FROM, ON = "val_ood", "test"
BEST = "the best candidate of each task (oracle)"
CHOOSE, REFIT = f"choose, {TO_CHOOSE} answers", f"refit, {TO_REFIT} answers"
METRICS = {"worst_group": "worst group", "core_auc": "core AUC"}


def candidates(table: dict[str, Any]) -> list[str]:
    return [row for row in table["rows"] if not row.startswith(ORACLE)]


def score(predicted: Predictions) -> dict[str, float | None]:
    metrics = split_metrics(predicted, resamples=0)
    return {name: metrics[name] for name in METRICS}


def measure(column: str, seed: int, rows: Sequence[str], folders: Sequence[Path], device: str) -> dict[str, Any]:
    """Measure one task with one seed: every candidate, and what the answers make of them in every draw."""
    torch.set_num_threads(1)
    first = TrainedModel(RunFolder(folders[0]), device)
    others = [TrainedModel(RunFolder(folder), device, data=first.data) for folder in folders[1:]]
    models = [first, *others]
    new, test = first.data.evaluation[FROM], first.data.evaluation[ON]
    fixed = [score(predict_split(model.method.logits, test, model.device)) for model in models]
    pool = Pool(
        list(map(str, folders)), list(rows), first.classes, [str(place) for place in range(len(new))],
        np.stack([model.predict_index(new.x) for model in models]),
    )  # fmt: skip
    chosen, refitted = [], []
    for draw in range(DRAWS):
        answers = [
            Answer(pool.names[question.image], first.classes[int(new.y[question.image])], question.why_asked,
                   question.probability)
            for question in _questions(pool, draw)
        ]  # fmt: skip
        best = pool.runs.index(choose(pool, Answers(answers)).chosen.run)
        chosen.append({"row": rows[best], **fixed[best]})
        asked = np.random.default_rng((seed, draw)).choice(len(new), TO_REFIT, replace=False)
        inputs = Inputs([pool.names[place] for place in asked], new.x[asked])
        images = Inputs(pool.names, new.x)
        fitted = fit(models, [inputs] * len(models), [images] * len(models), new.y[asked].numpy(), unwatched)
        row = rows[models.index(fitted.chosen.model)]
        scores = score(predict_split(fitted.method.logits, test, fitted.chosen.model.device))
        refitted.append({"row": row, "features": fitted.kind, **scores})
    by_row = dict(zip(rows, fixed, strict=True))
    return {"column": column, "seed": seed, "fixed": by_row, "choose": chosen, "refit": refitted}


def _questions(pool: Pool, seed: int) -> list[Any]:
    """Return the first questions that `sitar ask` would ask."""
    order, asked = Order(pool.disagree, seed), []
    while len(asked) < TO_CHOOSE:
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
    parts = [TEXT]
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
    return (
        f"The candidate with the best worst group on average is {fixed}. Over it, refit gains "
        f"{gains['worst_group']:+.1f} points of worst group and {gains['core_auc']:+.1f} of core AUC. It is below it "
        f"on {below} of {len(columns)} tasks. Choose is {regret:.1f} points of worst group below the best of each task."
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
benchmark](exchange.md), and its runs are the candidates. `choose` has {TO_CHOOSE} answers in the order of `sitar ask`,
`refit` has {TO_REFIT} about random images. Each is the mean of {DRAWS} draws for every seed. Tasks for tuning do not
count in the mean.

`python reproduce/bit.py` makes this page from `reproduce/records/bit.json`.
"""


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=Path, default=Path("runs", "reproduce", TABLE), help="folder with the runs")
    parser.add_argument("--workers", type=int, default=1, help="number of processes that measure at the same time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true", help="only make the page again from the record")
    options = parser.parse_args(words)
    table, record = records.load_table(TABLE), records.record_path(NAME)
    runs: list[dict[str, Any]] = json.loads(record.read_text(encoding="utf-8"))["runs"] if record.exists() else []
    if not options.table:
        rows, done = candidates(table), {(run["column"], run["seed"]) for run in runs}
        folders = {
            (job["column"], job["seed"], job["row"]): options.runs / job["folder"] for job in records.jobs(table)
        }
        todo = [(c, seed) for c in table["columns"] for seed in table["seeds"] if (c, seed) not in done]
        places = [(c, seed, [folders[c, seed, row] for row in rows]) for c, seed in todo]
        ready = [(c, seed, paths) for c, seed, paths in places if all(RunFolder(path).is_done for path in paths)]
        print(f"{len(ready)} of {len(todo)} tasks and seeds have all of their runs.", flush=True)
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            jobs = [pool.submit(measure, c, seed, rows, paths, options.device) for c, seed, paths in ready]
            for number, job in enumerate(as_completed(jobs), 1):
                runs.append(job.result())
                print(f"{number}/{len(jobs)} {runs[-1]['column']}, seed {runs[-1]['seed']}", flush=True)
                order = list(table["columns"])
                runs.sort(key=lambda run: (order.index(run["column"]), run["seed"]))
                records.write_record(NAME, runs, {})
    page = records.page_path(NAME)
    write_atomic(page, render({"runs": runs}).encode())
    print(f"Wrote {page}")


if __name__ == "__main__":
    main()
