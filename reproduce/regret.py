"""How much is lost by leaving a run alone? Compute the regret of `sitar_auto` against its best candidate in hindsight.

Candidates are ERM, the control, SITAR and, for images, SITAR along the bank. Regret is the difference between the one
with the best mean over seeds on a task, and what `sitar_auto` has there. The runs come from the tables auto_*.yaml
(`python reproduce/run.py auto_planted` and so on), and from frozen_faces_runs.py. The rule was chosen on other data
(auto_rule.py), before any run of these tables.

`python reproduce/regret.py` writes the page docs/results/regret.md, and its sums to reproduce/records/regret_sums.json,
so that other pages can quote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from records import load_table

from sitar.files import write_atomic

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "regret.md"
RECORD = HERE / "records" / "regret_sums.json"
TARGET = 4.0  # points: the mean regret should be below this
NAMES = {"erm": "ERM", "control": "control", "sitar": "SITAR", "bank": "bank"}
TABLES = {  # what is judged: the split and its metric
    "auto_planted": ("planted features, worst group", "ood_test", "worst_group"),
    "auto_demo": ("ColorMNIST, 5,000 images, OOD", "ood_test", "average"),
    "auto_color_mnist": ("ColorMNIST, OOD", "ood_test", "average"),
    "auto_exchange": ("exchange benchmark, worst group", "test", "worst_group"),
    "auto_sites": ("sites, worst group at unseen sites", "ood_test", "worst_group"),
    "auto_bar": ("BAR, frozen encoder, average", "test", "average"),
}
NO_SHORTCUT = "data.rho=0.5"  # columns with this setting have none
Task = dict[str, float]  # the mean over seeds of each candidate and of "auto"; the share of seeds that chose each

TEXT = """\
# The regret of a run that is left alone

[sitar_auto](../methods/sitar_auto.md) trains ERM, the [control](../glossary.md#control), SITAR and, for images, SITAR
along a bank of properties. A rule that reads training data alone chooses. The regret on a task is the difference
between the candidate that is best in hindsight, by its mean over seeds, and what sitar_auto has. It is in points, and a
cell is a mean over tasks. The other columns are rules that always take the same candidate.

`python reproduce/regret.py` makes this page from records. A line that says "not run yet" has none:
`python reproduce/run.py NAME` makes the runs of the table in brackets. A table that was not run as a whole has fewer
tasks here than columns, in their order, and the same command runs the rest.

The rule was chosen on other planted settings, on another draw of the same ColorMNIST, and with other seeds
(`reproduce/auto_rule.py`). It was committed before the first runs of the tables that are named in brackets
([decisions](../decisions.md#the-rule-of-sitar_auto-chosen-again)). What its gates ask was mended later, because it was
wrong on BAR and on small images of one's own. `auto_bar`, `auto_demo` and these small images were then run again, so
they are no test of it. Planted features have no bank, and nothing changed for them. The pairs of faces are features in
a NumPy file, which have no bank either: `folder_pretrained/sitar_auto` would ask the properties too. They are those for
tuning, with one seed, their SITAR keeps its epoch by val, and what would be chosen follows from the gate.
"""


def tasks_of(runs: Iterable[Mapping[str, Any]], split: str, metric: str) -> dict[str, Task]:
    """Return a task for each column of the runs of a table, with what auto and its candidates have there."""
    columns: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        columns.setdefault(run["column"], []).append(run)
    return {
        column: {
            **{name: mean(run["selections"][name][split][metric] for run in own) for name in _candidates(own[0])},
            **{f"chose {name}": mean(run["auto"]["chosen"] == name for run in own) for name in _candidates(own[0])},
            "auto": mean(run["splits"][split][metric] for run in own),
            "seeds": len(own),
        }
        for column, own in columns.items()
    }


def _candidates(found: Mapping[str, Any]) -> list[str]:
    """Return the candidates that a run, or a task, has."""
    return [name for name in NAMES if name in found.get("selections", found)]


def faces(record: Mapping[str, Any]) -> dict[str, Task]:
    """Return the tasks of frozen_faces_runs.py. The gate on the latent of the control says what auto would choose."""
    from sitar.functional.gate import TAU

    rows, found = {"erm": "ERM", "control": "control", "sitar": "swap, alpha 1"}, {}
    runs = {(run["pair"], run["row"], run["seed"]): run for run in record["runs"] if run["again"] == 0}
    for pair in dict.fromkeys(run["pair"] for run in record["runs"]):
        seeds = [seed for p, row, seed in runs if p == pair and row == "control"]
        seeds = [seed for seed in seeds if all((pair, row, seed) in runs for row in rows.values())]
        opened = {seed: runs[pair, "control", seed]["gate"]["swap"] >= TAU for seed in seeds}
        for role in ("label", "exchanged") if seeds else ():
            label, shortcut = pair.split("_with_")[:: 1 if role == "label" else -1]
            value = {
                (name, seed): runs[pair, row, seed][role]["worst_group"] for name, row in rows.items() for seed in seeds
            }
            found[f"{label} with {shortcut}"] = {
                **{name: mean(value[name, seed] for seed in seeds) for name in rows},
                "auto": mean(value["sitar" if opened[seed] else "erm", seed] for seed in seeds),
                "chose sitar": mean(opened.values()),
                "seeds": len(seeds),
            }
    return found


def own_images(record: Mapping[str, Any], metric: str) -> dict[str, Task]:
    """Return the tasks of own_presets.py that have a shortcut (worst group), or those without one (average)."""
    runs = [
        {
            "column": run["task"],
            "selections": {name: {"test": of} for name, of in run["candidates"].items() if name in NAMES},
            "splits": {"test": run["last"]},
            "auto": run["auto"],
        }
        for run in record["runs"]
        if "candidates" in run and run["task"].startswith("no shortcut") == (metric == "average")
    ]
    return tasks_of(runs, "test", metric)


def regret(task: Task, what: str) -> float:
    """Return what is lost on a task, as a fraction."""
    return max(task[name] for name in _candidates(task)) - task[what]


def least_regret(record: Mapping[str, Any], axes: int) -> tuple[float, int]:
    """Return the least mean regret on the exchange benchmark of any rule that reads training and validation data alone.

    Both tasks of a pair have the same data, so that such a rule chooses the same candidate for both.
    """
    rows = ("ERM", f"control, {axes} axes", f"sitar, {axes} axes")
    values: dict[tuple[str, str], list[float]] = {}
    for run in record["runs"]:
        values.setdefault((run["column"], run["row"]), []).append(run["splits"]["test"]["worst_group"])
    means = {key: mean(of) for key, of in values.items()}
    pairs = {tuple(sorted(column.split(" with "))) for column, _ in means}
    best = []
    for first, second in sorted(pairs):
        both = [f"{first} with {second}", f"{second} with {first}"]
        lost = {row: mean(max(means[c, r] for r in rows) - means[c, row] for c in both) for row in rows}
        best.append(min(lost.values()))
    return mean(best), len(best)


def read(name: str) -> dict[str, Any] | None:
    path = HERE / "records" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def benchmarks() -> dict[str, dict[str, Task] | None]:
    """Return the tasks of every benchmark by its title. None: it was not run yet."""
    found: dict[str, dict[str, Task] | None] = {}
    for name, (title, split, metric) in TABLES.items():
        record = read(name)
        found[f"{title} (`{name}`)"] = None if record is None else tasks_of(record["runs"], split, metric)
    own = read("own_presets")
    found["small images of one's own, worst group (`own_presets.py`)"] = own_images(own, "worst_group") if own else None
    frozen = read("frozen_faces")
    found["tuning pairs of faces, frozen encoder, worst group (`frozen_faces_runs.py`)"] = (
        faces(frozen) if frozen else None
    )
    return found


def without_shortcut() -> dict[str, dict[str, Task] | None]:
    """Return the tasks that have no shortcut, judged by average accuracy."""
    found: dict[str, dict[str, Task] | None] = {}
    for name, (title, split, _) in TABLES.items():
        columns = [column for column, words in load_table(name)["columns"].items() if NO_SHORTCUT in words]
        record = read(name)
        tasks = {} if record is None else tasks_of(record["runs"], split, "average")
        if columns:
            of = {column: tasks[column] for column in columns if column in tasks}
            found[f"{title.rpartition(', ')[0]} (`{name}`)"] = of or None
    own = read("own_presets")
    found["small images of one's own (`own_presets.py`)"] = (own_images(own, "average") or None) if own else None
    return found


def render() -> str:
    """Return the page."""
    heads = ["tasks", "seeds", "auto", *(f"always {name}" for name in NAMES.values()), "chosen"]
    lines = [TEXT, f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    measured = benchmarks()
    for title, tasks in measured.items():
        if not tasks:
            lines.append(f"| {title} | {' | '.join(['not run yet'] * len(heads))} |")
            continue
        of = list(tasks.values())
        cells = [
            f"{100 * mean(regret(task, what) for task in of):.1f}" if what in of[0] else "–"
            for what in ("auto", *NAMES)
        ]
        seeds = f"{min(int(task['seeds']) for task in of)}"
        lines.append(f"| {title} | {len(of)} | {seeds} | {' | '.join(cells)} | {_chosen(of)} |")
    lines += ["", *_target(measured), *_gains(measured), *_plain(), "", *_bound(), ""]
    for title, tasks in measured.items():
        if tasks:
            lines += [f"## Task by task: {title.split(' (`')[0]}", "", *_by_task(tasks), ""]
    return "\n".join(lines).rstrip() + "\n"


def _target(measured: Mapping[str, dict[str, Task] | None]) -> list[str]:
    """Say of every line whether it meets the target."""
    words: dict[str, list[str]] = {"missed": [], "met": []}
    for title, tasks in measured.items():
        if tasks:
            lost = 100 * mean(regret(task, "auto") for task in tasks.values())
            words["met" if lost < TARGET else "missed"].append(f"{title.split(' (`')[0]} ({lost:.1f})")
    said = [f"It is {word} on: {'; '.join(of)}." for word, of in words.items() if of]
    return [f"The target is a mean regret under {TARGET:g} points.", *said, ""]


def sums() -> dict[str, Any]:
    """Return the mean regret of auto and of every rule that always takes one candidate, and the bound, in points."""
    lines = []
    for title, tasks in benchmarks().items():
        of = list((tasks or {}).values())
        lost = {what: _points(regret(task, what) for task in of) for what in ("auto", *NAMES) if of and what in of[0]}
        lines += [{"table": title.partition("`")[2].partition("`")[0], "tasks": len(of), **lost}] if of else []
    record = read("exchange")
    assert record is not None
    return {
        "lines": lines,
        "bound": [{"axes": axes, "regret": _points([least_regret(record, axes)[0]])} for axes in (10, 32)],
    }


def _points(fractions: Iterable[float]) -> float:
    return round(100 * mean(fractions), 2)


def _chosen(tasks: list[Task]) -> str:
    """Say how often each candidate was chosen. Those that never were are left out."""
    shares = {name: mean(task.get(f"chose {name}", 0.0) for task in tasks) for name in NAMES}
    shares["erm"] = 1 - sum(share for name, share in shares.items() if name != "erm")
    return ", ".join(f"{NAMES[name]} {100 * share:.0f} %" for name, share in shares.items() if share > 0)


def _gains(measured: Mapping[str, dict[str, Task] | None]) -> list[str]:
    """Return what auto gains and loses against ERM, which is what a user would have trained."""
    lines = [
        "## Gains and losses against ERM",
        "",
        "How far auto is above ERM, in points, over the tasks of a line.",
        "",
    ]
    lines += ["| | mean | most gained | most lost | tasks on which it is ERM |", "|---|---|---|---|---|"]
    for title, tasks in measured.items():
        if tasks:
            gains = [100 * (task["auto"] - task["erm"]) for task in tasks.values()]
            same = sum(gain == 0 for gain in gains)
            most = f"{max(0.0, *gains):.1f} | {max(0.0, *(-gain for gain in gains)):.1f}"
            lines.append(f"| {title.split(' (`')[0]} | {mean(gains):+.1f} | {most} | {same} of {len(gains)} |")
    return [*lines, ""]


def _plain() -> list[str]:
    lines = [
        "## Data without a shortcut",
        "",
        "Average accuracy in percent, as a mean over tasks, and how far auto is below ERM on the task where it is",
        "furthest below. The target was at most 3 points.",
        "",
        "| | tasks | auto | ERM | most below ERM |",
        "|---|---|---|---|---|",
    ]
    for title, tasks in without_shortcut().items():
        if tasks is None:
            lines.append(f"| {title} | {' | '.join(['not run yet'] * 4)} |")
            continue
        of = list(tasks.values())
        both = " | ".join(f"{100 * mean(task[what] for task in of):.1f}" for what in ("auto", "erm"))
        lines.append(f"| {title} | {len(of)} | {both} | {100 * max(task['erm'] - task['auto'] for task in of):.1f} |")
    return lines


def _by_task(tasks: dict[str, Task]) -> list[str]:
    names = [name for name in NAMES if any(name in task for task in tasks.values())]
    heads = ["auto", *(NAMES[name] for name in names), "chosen"]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for title, task in tasks.items():
        cells = [f"{100 * task[what]:.1f}" if what in task else "–" for what in ("auto", *names)]
        lines.append(f"| {title} | {' | '.join(cells)} | {_chosen([task])} |")
    return lines


def _bound() -> list[str]:
    record = read("exchange")
    assert record is not None
    (ten, pairs), (wide, _) = least_regret(record, 10), least_regret(record, 32)
    return [
        "## What no rule can do",
        "",
        "On the [exchange benchmark](exchange.md) no training or validation image contradicts the shortcut. The two",
        "tasks of a pair have the same data. So every rule that reads this data alone chooses the same candidate for",
        "both, and loses on one what it gains on the other. The best of all such rules, chosen in hindsight for each",
        f"pair, still has a mean regret of {100 * ten:.1f} points with 10 axes and of {100 * wide:.1f} with 32, over",
        f"{pairs} pairs. A target of under 4 points cannot be met there without a bit of information from outside:",
        "[a person's answers](../ask.md), [a nuisance that is named](../nuisances.md), or",
        "[unlabelled images](../own_data.md#unlabelled-images).",
    ]


def main() -> None:
    write_atomic(RECORD, (json.dumps(sums(), indent=1) + "\n").encode())
    write_atomic(PAGE, render().encode())


if __name__ == "__main__":
    main()
