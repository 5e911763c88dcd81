"""Make the tables of one run: its metrics on every split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.reporting.tables.table import Table, percent, percent_range


def splits_table(title: str, splits: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show average and worst group with their intervals, one row for each split. It fits a terminal of 80 columns."""
    rows = []
    for name, metrics in splits.items():
        intervals = metrics.get("intervals") or {}
        row = [name, f"{metrics['n']:,}"]
        for metric in ("average", "worst_group"):
            row += [percent(metrics[metric]), percent_range(intervals.get(metric))]
        rows.append(row)
    columns = ["split", "n", "average", "95 % range", "worst group", "95 % range"]
    return Table(title, columns, rows, "Percent; ranges are bootstrap intervals over samples.")


def details_table(title: str, splits: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show the other metrics of result.json, one row for each split."""
    metrics = ["adjusted_average", "class_balanced", "auroc", "auprc", "f1", "calibration_error"]
    rows = [[name, *(percent(figures.get(metric)) for metric in metrics)] for name, figures in splits.items()]
    columns = ["split", "adjusted average", "class balanced", "AUROC", "AUPRC", "F1", "calibration error"]
    return Table(title, columns, rows, "Percent; the adjusted average weights groups as the training split does.")


def groups_table(title: str, splits: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show accuracy and size of every group, one row for each group and one column for each split."""
    grouped = {name: metrics["groups"] for name, metrics in splits.items() if metrics["groups"]}
    names = list(dict.fromkeys(group for groups in grouped.values() for group in groups))
    rows = []
    for group in names:
        cells = [groups.get(group, {"accuracy": None, "n": 0}) for groups in grouped.values()]
        rows.append([group, *(f"{percent(cell['accuracy'])} ({cell['n']:,})" for cell in cells)])
    return Table(title, ["group", *grouped], rows, "Percent accuracy and number of samples; a dash for an empty group.")
