"""Make the tables of one run: its metrics on every split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.registry import metrics
from sitar.reporting.groups import NO_GROUPS, named_group, notes_on_groups
from sitar.reporting.tables.table import HEADLINE, Table, chance, percent, percent_range


def splits_table(title: str, splits: Mapping[str, Mapping[str, Any]], result: Mapping[str, Any]) -> Table:
    """Show average and worst group with their intervals, one row for each split. It fits a terminal of 80 columns.

    Where there are groups and the classes are known, the last row is what a classifier has that knows nothing. `result`
    is the record of the run.
    """
    classes = len(result.get("classes") or ())
    rows = []
    for name, figures in splits.items():
        intervals = figures.get("intervals") or {}
        row = [name, f"{figures['n']:,}"]
        for metric in HEADLINE:
            row += [percent(figures[metric]), percent_range(intervals.get(metric))]
        rows.append(row)
    if classes and any(figures.get("groups") for figures in splits.values()):
        guess = [cell for metric in HEADLINE for cell in (percent(chance(metric, classes)), "–")]
        rows.append(["chance", "–", *guess])  # short, for a narrow terminal
    columns = ["split", "n", "average", "95 % range", "worst group", "95 % range"]
    notes = ["Percent; ranges are bootstrap intervals over samples, Wilson's at 0 and 100."]
    notes += [NO_GROUPS] if any(figures["worst_group"] is None for figures in splits.values()) else []
    notes += notes_on_groups([{**result, "splits": splits}], splits)
    return Table(title, columns, rows, " ".join(notes))


def details_table(title: str, splits: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show the other metrics, errors last, one row for each split."""
    others = [metric for metric in metrics().values() if metric.name not in HEADLINE]
    others = sorted(others, key=lambda metric: not metric.higher_is_better)
    rows = [[name, *(percent(figures.get(metric.name)) for metric in others)] for name, figures in splits.items()]
    columns = ["split", *(metric.title for metric in others)]
    return Table(title, columns, rows, "Percent; the adjusted average weights groups as the training split does.")


def groups_table(title: str, splits: Mapping[str, Mapping[str, Any]], result: Mapping[str, Any]) -> Table:
    """Show accuracy and size of every group, one row for each group and one column for each split.

    Groups are called by the names of the classes and of the values that are in `result`, the record of the run.
    """
    known = result.get("classes") or (), result.get("attributes") or {}
    grouped = {name: figures["groups"] for name, figures in splits.items() if figures["groups"]}
    names = list(dict.fromkeys(group for groups in grouped.values() for group in groups))
    rows = []
    for group in names:
        cells = [groups.get(group, {"accuracy": None, "n": 0}) for groups in grouped.values()]
        rows.append([named_group(group, *known), *(f"{percent(cell['accuracy'])} ({cell['n']:,})" for cell in cells)])
    return Table(title, ["group", *grouped], rows, "Percent accuracy and number of samples; a dash for an empty group.")
