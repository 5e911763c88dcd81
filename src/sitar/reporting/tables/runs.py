"""Make the table that compares runs, and records of the same for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sitar.errors import RunError
from sitar.given import notes
from sitar.registry import metrics
from sitar.reporting.against import Verdict, goodness, judge
from sitar.reporting.comparison import Row, unlike_presets
from sitar.reporting.groups import NO_GROUPS, notes_on_groups
from sitar.reporting.tables.differences import verdict_record
from sitar.reporting.tables.table import CHANCE, HEADLINE, KNOWLEDGE, Table, chance, percent
from sitar.splits import TEST_SPLITS

BOLD_NOTE = "Bold: the best, where it can be told apart from the next."


def compare_table(rows: Sequence[Row], names: Sequence[str] = HEADLINE) -> Table:
    """Show mean and deviation over seeds on every test split, one line for each row of runs.

    Where groups exist, the last line is what a classifier has that knows nothing.
    """
    shown = shown_in(rows, names)
    columns = ["runs", "seeds", *(f"{split} {metrics()[name].short}" for split, name in shown)]
    lines = []
    for row in rows:
        cells = [row.summary(split, name) for split, name in shown]
        lines.append([row.marked_label, ",".join(map(str, row.seeds)), *map(_mean_and_std, cells)])
    classes = {len(result.get("classes", ())) for row in rows for result in row.results}
    if len(classes) == 1 and 0 not in classes and any(_has(rows, split, "worst_group") for split, _ in shown):
        lines.append([CHANCE, "–", *(percent(chance(name, *classes)) for _, name in shown)])
    datasets = sorted({result["dataset"] for row in rows for result in row.results})
    selections = sorted({result["selection"] for row in rows for result in row.results})
    note = (
        f"Percent, mean ± standard deviation over seeds. Data: {', '.join(datasets)}. Epoch: {', '.join(selections)}."
    )
    results = [row.results[0] for row in rows]
    worst = [split for split, name in shown if name == "worst_group"]
    dashes = any(_has([row], s, "average") and not _has([row], s, "worst_group") for row in rows for s in worst)
    about = [NO_GROUPS] * dashes + notes_on_groups(results, worst)
    note = " ".join([note, *about, *notes(results)])
    return Table("Comparison", columns, lines, "\n".join([note, *unlike_presets(rows)]))


def knowledge_table(rows: Sequence[Row]) -> Table | None:
    """Show the core and the shortcut AUC of the same rows. There is no table where no run has them."""
    if not any(_has(rows, split, name) for split in TEST_SPLITS for name in KNOWLEDGE):
        return None
    note = (
        "Core AUC: how well the label is ranked where the attribute is the same. Shortcut AUC: how well the attribute "
        "is told where the label is the same; 50 is best, more follows it as in training, less the other way round."
    )
    return replace(compare_table(rows, KNOWLEDGE), title="What the predictions know and follow", note=note)


def shown_in(rows: Sequence[Row], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the splits and metrics that a table of rows shows."""
    splits = [s for s in TEST_SPLITS if any(s in result["splits"] for row in rows for result in row.results)]
    return [(split, name) for split in splits for name in names]


def with_best_in_bold(table: Table, rows: Sequence[Row], names: Sequence[str]) -> Table:
    """Mark the best row of each column, where it can be told apart from the next.

    Rows that were given more, such as group labels or answers, are no rivals. Where rows cannot be compared, none is
    marked.
    """
    rivals = [row for row in rows if not row.was_given_more]
    bold = set()
    for column, (split, name) in enumerate(shown_in(rows, names), start=2):
        known = [(row, value) for row in rivals if (value := row.summary(split, name)["mean"]) is not None]
        ranked = [row for row, _ in sorted(known, key=lambda pair: -goodness(metrics()[name], pair[1]))]
        with suppress(RunError):
            if len(ranked) > 1 and any(verdict.told_apart for verdict in judge([(ranked[0], ranked[1])], split, name)):
                bold.add((rows.index(ranked[0]), column))
    return replace(table, bold=frozenset(bold), note=f"{table.note} {BOLD_NOTE}" if bold else table.note)


def records(rows: Sequence[Row], names: Sequence[str], verdicts: Sequence[Verdict] = ()) -> list[dict[str, Any]]:
    """Return one record for each row, split and metric, with what the row is against a reference, as fractions."""
    known = {(id(verdict.row), verdict.split, verdict.metric): verdict for verdict in verdicts}
    found = []
    for row in rows:
        for split, name in shown_in(rows, names):
            summary, verdict = row.summary(split, name), known.get((id(row), split, name))
            if summary["mean"] is None:
                continue
            about = {
                "runs": row.label, **{key: _flat(value) for key, value in row.given.items()},
                "seeds": _flat(row.seeds), "split": split, "metric": name, "mean": summary["mean"],
                "std": summary["std"],
            }  # fmt: skip
            found.append({**about, **({} if not verdicts else verdict_record(verdict))})
    return found


def _flat(value: Any) -> Any:
    """Return a value as one cell: a list becomes words."""
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _has(rows: Sequence[Row], split: str, name: str) -> bool:
    return any(row.summary(split, name)["mean"] is not None for row in rows)


def _mean_and_std(summary: Mapping[str, Any]) -> str:
    text = percent(summary["mean"])
    return text if summary["std"] is None else f"{text} ± {100 * summary['std']:.1f}"
