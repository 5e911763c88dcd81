"""Make the table of `sitar sweep`, from its record: the split that chooses beside the test splits, which judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar import given
from sitar.registry import metrics
from sitar.reporting.tables.table import HEADLINE, Table, percent
from sitar.splits import TEST_SPLITS, VAL, VAL_OOD
from sitar.wording import are, counted

BY_GROUPS = "‖"
BY_GROUPS_NOTE = "{mark} chosen with the help of groups of {split}: an upper bound, where groups are not known."
BY_OOD = "◊"
BY_OOD_NOTE = f"{BY_OOD} chosen on {VAL_OOD}: a hint about the test, which others may not have."
CHOSEN, CONTROL = "chosen", "control"


def sweep_table(record: Mapping[str, Any]) -> Table:
    """Show mean and deviation over seeds, a row for each point, with the chosen one and the control marked."""
    points = record["points"]
    keys = list(record["over"])
    shown = shown_columns(record)
    columns = [*keys, "seeds", *(f"{split} {metrics()[name].short}" for split, name in shown), ""]
    rows = []
    for point in points:
        marks = [" ".join([CHOSEN, *_marks(record)])] if point["name"] == record["chosen"] else []
        marks += [CONTROL] * point["control"] + [kind.mark(kind.of(point)) for kind in given.kinds_of(point)]
        values = [written(point["values"][key]) for key in keys]
        cells = [_cell(point["splits"].get(split, {}).get(name)) for split, name in shown]
        rows.append([*values, ",".join(map(str, point["seeds"])) or "–", *cells, ", ".join(marks)])
    return Table(f"Sweep of {record['preset']}", columns, rows, _note(record))


def _note(record: Mapping[str, Any]) -> str:
    rule, points = record["select"], record["points"]
    notes = [
        f"Percent, mean ± standard deviation over seeds. Chosen by {rule['rule']}, without a look at a test split."
    ]
    tied = [point["name"] for point in points if point["name"] != record["chosen"] and _best(record) is not None
            and point["score"] == _best(record)]  # fmt: skip
    if tied:
        notes.append(f"As good on {chooser(record)}: {'; '.join(tied)}.")
    if rule["reads_groups"]:
        notes.append(BY_GROUPS_NOTE.format(mark=BY_GROUPS, split=chooser(record)))
    if chooser(record) == VAL_OOD:
        notes.append(BY_OOD_NOTE)
    notes += given.notes(points)
    if n := record["unfinished"]:
        notes.append(f"{counted(n, 'run')} {are(n)} not finished, and a point that lacks one is not chosen.")
    if record["mixed_data"]:
        notes.append("The data has changed between these runs, so they cannot be compared: sweep into another folder.")
    return " ".join(notes)


def chooser(record: Mapping[str, Any]) -> str:
    """Return the split that chooses."""
    return record["select"].get("split", VAL)


def _marks(record: Mapping[str, Any]) -> list[str]:
    """Return the marks of the choice: what it was told beside the labels of `val`."""
    return [BY_GROUPS] * record["select"]["reads_groups"] + [BY_OOD] * (chooser(record) == VAL_OOD)


def _best(record: Mapping[str, Any]) -> float | None:
    return next((point["score"] for point in record["points"] if point["name"] == record["chosen"]), None)


def shown_columns(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the splits and metrics that are shown: those of the rule, then the headline of each test split."""
    wanted = [
        (chooser(record), record["select"]["metric"]),
        *((split, name) for split in TEST_SPLITS for name in HEADLINE),
    ]
    return [
        (split, name)
        for split, name in wanted
        if split == chooser(record) or any(name in point["splits"].get(split, {}) for point in record["points"])
    ]


def written(value: Any) -> str:
    """Write the value of a setting as a user would."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(summary: Mapping[str, Any] | None) -> str:
    if summary is None:
        return "–"
    deviation = "" if summary["std"] is None else f" ± {100 * summary['std']:.1f}"
    return percent(summary["mean"]) + deviation
