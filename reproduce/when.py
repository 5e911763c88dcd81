"""When does the noise help? `python reproduce/when.py` compares the exchange benchmark with what was predicted of it.

The predictions are in reproduce/records/ease.json, and were written before the runs (ease.py). The runs are in
reproduce/records/exchange.json. The page is docs/results/when.md, and its figure docs/figures/when.svg.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import records
from matplotlib.figure import Figure
from values import interval

from sitar.files import write_atomic
from sitar.reporting.figures.style import BLUE, GREY, ORANGE, save

PAGE = records.page_path("when")
FIGURE = records.HERE.parent / "docs" / "figures" / "when.svg"
SPLIT = "test.worst_group"


class Gain(NamedTuple):
    """A gain is the difference of two rows of the exchange benchmark, with the prediction that speaks of it."""

    name: str
    prediction: str
    row: str
    reference: str


GAINS = (
    Gain("sitar over control, 32 axes", "sitar over control", "sitar, 32 axes", "control, 32 axes"),
    Gain("sitar over control, 10 axes", "sitar over control", "sitar, 10 axes", "control, 10 axes"),
    Gain("control over ERM, 10 axes", "control over ERM", "control, 10 axes", "ERM"),
    Gain("control over ERM, 32 axes", "control over ERM", "control, 32 axes", "ERM"),
)
TEXT = """\
# When does the noise help?

Where no training image contradicts the [shortcut](../glossary.md#shortcut), nothing in the data says which of two cues
is the label ([exchange](../glossary.md#exchange)). A method then prefers one kind of cue. This page asks which kind,
and whether it can be told beforehand from how easy the two cues are.

The [ease](../glossary.md#ease) of an attribute is the balanced accuracy of one fixed linear model on images of all
groups, none of which is a test image here. Let d be the ease of the shortcut minus the ease of the label. The rule was
written before any run, and so were the predictions (`reproduce/ease.py`). For d within ± 0.05 it predicts nothing.

- The targeted [noise](../glossary.md#noise) gains over the [control](../glossary.md#control) where the shortcut is the
  easier cue (d > 0), and loses where the label is. An earlier measurement says that it needs room: with 10 axes the VAE
  has already removed what is fine. So the line with 32 axes is the one that decides.
- The control gains over ERM where the label is the easier cue (d < 0), and loses where the shortcut is. The VAE keeps
  what fills many pixels, and so do the principal axes of the linear model. The line with 10 axes decides.

A gain is the difference in [worst group](../glossary.md#worst-group), in points, as the mean over the seeds. The two
tasks of a pair are no independent evidence: what a method gains on one it loses on the other, up to the groups that
follow the shortcut. Tasks for tuning do not count.

`python reproduce/when.py` makes this page from `reproduce/records/ease.json` and `reproduce/records/exchange.json`.
"""
FAR, AIM = 0.1, 5.0  # the target speaks of shortcuts that are easier by more than this, and of so many points
TARGET = f"""\
## The target

On the tasks whose shortcut is easier by more than {FAR:g}, SITAR should have {AIM:g} points of worst group more than
its control, and the interval of the gain over seeds should lie above 0.

Both intervals are 95 % intervals by Student's t, of gains that are paired by seed. The first is over seeds: it is that
of the mean gain over these tasks. The second is over tasks: it says what to expect of other tasks of this kind. Neither
is over images, because the records hold no predictions of single images. The same tasks, run again with five seeds,
have an interval over both ([page](easier_shortcut.md)).
"""
ORACLE = "oracle (ERM, groups of one size)"
KNOWN = "val.core_auc"  # of the oracle: how well a network learns an attribute where nothing contradicts it
BAND = 5.0  # points of core AUC within which the second rule predicts nothing
SECOND = """\
## A second rule, written after the runs

The first rule is wrong about the control: it gains over ERM where the rule says that it loses. The table of all tasks
shows why. ERM follows the cue that is easier *for a network*, often not the one that a linear model finds easier.
So here the ease of an attribute is the [core AUC](../glossary.md#core-auc) of the [oracle](../glossary.md#oracle) on
`val`: how well the same network learns the attribute from groups of one size. No test image is in it. Let D be this
ease of the shortcut minus that of the label, in points. Within ± 5 nothing is predicted.

- The control gains over ERM where the shortcut is easier for a network (D > 0). ERM takes the shortcut there, and the
  VAE has not kept it.
- For the noise over the control with 32 axes, D < 0 fits the tasks for tuning. It does not fit the others.

This rule was found in the results of all tasks, those that count included. So the counts below describe these runs.
They are no test of the rule: that needs other data.
"""
COLOURS = """\
Blue tasks count. Grey ones are for tuning, or lie where nothing is predicted (the grey band). The plot on the right
belongs to the second rule below."""
MISSING = """\
The runs were not made yet: `python reproduce/run.py exchange --set data.root=DIR` makes them, on a GPU. The next table
holds the predictions."""


def predictions() -> list[dict[str, Any]]:
    return json.loads(records.record_path("ease").read_text(encoding="utf-8"))["predictions"]


def name_of(task: Mapping[str, Any]) -> str:
    return f"{task['label']} with {task['attribute']}"


def gains(record: Mapping[str, Any], gain: Gain, split: str = SPLIT) -> dict[str, list[float]]:
    """Return the gains in every task, in points, one for each seed that both rows have."""
    return {column: list(found.values()) for column, found in gains_by_seed(record, gain, split).items()}


def gains_by_seed(record: Mapping[str, Any], gain: Gain, split: str = SPLIT) -> dict[str, dict[int, float]]:
    """Return the gain in every task, in points, by the seed. Only seeds that both rows have are there."""
    values = {
        (run["row"], run["column"], run["seed"]): records.value_of(run, split)
        for run in record["runs"]
        if run["row"] in (gain.row, gain.reference)
    }
    found: dict[str, dict[int, float]] = {}
    for (row, column, seed), value in values.items():
        if row == gain.row and (gain.reference, column, seed) in values:
            found.setdefault(column, {})[seed] = value - values[gain.reference, column, seed]
    return found


def target(tasks: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> list[str]:
    """Write whether the noise reaches its target on the tasks with a far easier shortcut. Tuning does not count."""
    names = {name_of(task) for task in tasks if task["difference"] > FAR and not task["tuning"]}
    lines, verdicts = ["| gain | tasks | mean | over seeds | over tasks |", "|---|---|---|---|---|"], [""]
    for gain in GAINS[:2]:
        each = [by_seed for name, by_seed in gains_by_seed(record, gain).items() if name in names]
        common = set.intersection(*map(set, each)) if each else set()
        seeds = {seed: mean(by_seed[seed] for by_seed in each) for seed in common}
        if not seeds:
            lines.append(f"| {gain.name} | {len(each)} | {records.NOT_RUN} | | |")
            continue
        gained, ends = mean(seeds.values()), interval(seeds)
        over_tasks = interval(dict(enumerate(mean(by_seed.values()) for by_seed in each)))
        lines.append(f"| {gain.name} | {len(each)} | {gained:+.1f} | {_ends(ends)} | {_ends(over_tasks)} |")
        short = [f"the mean is below {AIM:g} points"] if gained < AIM else []
        short += ["the interval over seeds reaches below 0"] if ends is None or ends[0] <= 0 else []
        verdicts.append(f"- *{gain.name}*: the target is {'missed, for ' + ' and '.join(short) if short else 'met'}.")
    return [*lines, *verdicts]


def _ends(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:+.1f} to {ends[1]:+.1f}"


def score(tasks: Sequence[Mapping[str, Any]], found: Mapping[str, Sequence[float]], prediction: str) -> tuple[int, int]:
    """Count the signs that were predicted right, and the predictions that could be compared. Tuning does not count."""
    compared = [
        (task[prediction], mean(found[name_of(task)]))
        for task in tasks
        if task[prediction] and not task["tuning"] and name_of(task) in found
    ]
    return sum(sign * gain > 0 for sign, gain in compared), len(compared)


def network_ease(record: Mapping[str, Any]) -> dict[str, float]:
    """Return by how much the shortcut of every task is easier for a network than the label, in points."""
    values: dict[str, list[float]] = {}
    for run in record["runs"]:
        if run["row"] == ORACLE:
            values.setdefault(run["column"], []).append(records.value_of(run, KNOWN))
    ease = {column: mean(found) for column, found in values.items()}
    exchanged = {column: " with ".join(column.split(" with ")[::-1]) for column in ease}
    return {column: ease[exchanged[column]] - ease[column] for column in ease if exchanged[column] in ease}


def second_rule(
    tasks: Sequence[Mapping[str, Any]], found: Mapping[Gain, Mapping[str, Sequence[float]]], ease: Mapping[str, float]
) -> list[str]:
    """Write how often the second rule is right, on the tasks that it was read off and on the others."""
    lines = ["| gain | right, for tuning | said | right, others | said |", "|---|---|---|---|---|"]
    for gain, direction in ((GAINS[2], 1), (GAINS[3], 1), (GAINS[0], -1)):
        cells: list[str] = []
        for tuning in (True, False):
            said = [
                direction * ease[name_of(task)] * mean(found[gain][name_of(task)]) > 0
                for task in tasks
                if task["tuning"] == tuning and abs(ease[name_of(task)]) > BAND
            ]
            cells += [str(sum(said)), str(len(said))]
        lines.append(f"| {gain.name} | {' | '.join(cells)} |")
    lines += ["", "| | D | control over ERM, 10 axes |", "|---|---|---|"]
    for name in sorted(map(name_of, tasks), key=lambda name: -ease[name]):
        lines.append(f"| {name} | {ease[name]:+.1f} | {mean(found[GAINS[2]][name]):+.1f} |")
    return lines


def render() -> str:
    """Write the page, from the records alone."""
    tasks, record = predictions(), records.record_so_far("exchange")
    found = {gain: gains(record, gain) for gain in GAINS}
    parts = [TEXT]
    if any(found.values()):
        parts += ["| gain | predicted right | predicted |", "|---|---|---|"]
        for gain in GAINS:
            right, compared = score(tasks, found[gain], gain.prediction)
            parts.append(f"| {gain.name} | {right} | {compared} |")
        parts += ["", "![Gain against the difference of ease](../figures/when.svg)", ""]
        parts += [COLOURS, ""]
    else:
        parts += [MISSING, ""]
    parts += ["The signs in brackets are the predictions. No sign means that nothing is predicted.", ""]
    parts += [f"| | d | {' | '.join(gain.name for gain in GAINS)} |", "|---|---|" + "---|" * len(GAINS)]
    for task in sorted(tasks, key=lambda task: -task["difference"]):
        cells = [_cell(found[gain].get(name_of(task), []), task[gain.prediction]) for gain in GAINS]
        mark = " (for tuning)" if task["tuning"] else ""
        parts.append(f"| {name_of(task)}{mark} | {task['difference']:+.3f} | {' | '.join(cells)} |")
    if any(found.values()):
        parts += ["", TARGET, *target(tasks, record)]
    ease = network_ease(record)
    if set(ease) == {name_of(task) for task in tasks} and all(set(ease) == set(found[gain]) for gain in GAINS):
        parts += ["", SECOND, *second_rule(tasks, found, ease)]
    return "\n".join([*parts, ""])


def _cell(values: Sequence[float], predicted: int) -> str:
    shown = f"{mean(values):+.1f}" if values else records.NOT_RUN
    return shown + {1: " (+)", -1: " (−)", 0: ""}[predicted]


def draw() -> Figure:
    """Draw gains against the difference of ease: the mean over seeds, and the seeds around it.

    Two plots have the ease and the predictions that were written before the runs. The third has the second rule.
    """
    tasks, record = predictions(), records.record_so_far("exchange")
    band = json.loads(records.record_path("ease").read_text(encoding="utf-8"))["band"]
    linear, network = {name_of(task): task["difference"] for task in tasks}, network_ease(record)
    figure = Figure(figsize=(12.6, 4.2), layout="constrained")
    shown = (
        (GAINS[0], linear, band, "for a linear model"),
        (GAINS[2], linear, band, "for a linear model"),
        (GAINS[2], network, BAND, "for a network, points"),
    )
    for plot, (gain, ease, width, whose) in zip(figure.subplots(1, 3), shown, strict=True):
        found = gains(record, gain)
        for task in tasks:
            name = name_of(task)
            if (values := found.get(name)) and name in ease:
                color = GREY if task["tuning"] or abs(ease[name]) <= width else BLUE
                plot.plot([ease[name]] * len(values), values, ".", color=color, markersize=3, alpha=0.6)
                plot.plot(ease[name], mean(values), "o", color=color, markersize=6)
        plot.axvspan(-width, width, color=GREY, alpha=0.12, linewidth=0)
        plot.axhline(0, color=ORANGE, linewidth=1)
        plot.set(xlabel=f"ease of shortcut - ease of label,\n{whose}", ylabel="gain in worst group, points")
        plot.set_title(gain.name, fontsize=11)
        plot.spines[["top", "right"]].set_visible(False)
    return figure


def save_figure(path: Path = FIGURE) -> None:
    save(draw(), path)
    print(f"Wrote {path}")


def main() -> None:
    if records.record_path("exchange").exists():
        save_figure()
    write_atomic(PAGE, render().encode())
    print(f"Wrote {PAGE}")


if __name__ == "__main__":
    main()
