"""Show accuracies and the terms of the loss over epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.curves import SIZE, Chart, line_chart

NO_TERMS = ("seconds", "learning_rate")  # numbers of an epoch that are no terms of the loss


def make(comparison: Comparison, sharing: int) -> dict[str, Any]:
    return {
        "rows": [row.label for row in comparison.rows],
        "accuracies": accuracy_curves(comparison),
        "chosen": [(run.label, run.chosen) for run in comparison.runs if run.chosen is not None],
        "losses": [(run.label, charts) for run in comparison.runs if (charts := loss_curves(run))],
        "size": SIZE,
    }


def accuracy_curves(comparison: Comparison) -> list[Chart]:
    """Return a chart for each split that runs were evaluated on while they trained, a curve for each run."""
    splits = dict.fromkeys(
        key for run in comparison.runs for line in run.epochs for key, value in line.items() if _has_average(value)
    )
    charts = []
    for split in splits:
        series = [(run.label, run.row, _accuracies(run, split)) for run in comparison.runs]
        charts.append(line_chart(f"Accuracy on {split}", [curve for curve in series if curve[2]], top=1.0))
    return charts


def _has_average(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("average") is not None


def _accuracies(run: ComparedRun, split: str) -> list[tuple[float, float]]:
    """Return the points of the last phase. In the phases before it another model may be the one that is evaluated."""
    last = run.epochs[-1].get("phase") if run.epochs else None
    return [
        (place, line[split]["average"])
        for place, line in enumerate(run.epochs, 1)
        if line.get("phase") == last and _has_average(line.get(split))
    ]


def loss_curves(run: ComparedRun) -> list[Chart]:
    """Return a chart for each term of the loss of one run."""
    terms = dict.fromkeys(
        key for line in run.epochs for key, value in line.items() if isinstance(value, float) and key not in NO_TERMS
    )
    charts = []
    for term in terms:
        points = [(place, line[term]) for place, line in enumerate(run.epochs, 1) if term in line]
        charts.append(line_chart(term.replace("_", " "), [(run.label, run.row, points)]))
    return charts
