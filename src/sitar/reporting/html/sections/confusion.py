"""Show which classes each run takes for which, on the main split."""

from __future__ import annotations

from typing import Any

import numpy as np

from sitar.reporting.comparison import ComparedRun, Comparison

MOST_CLASSES = 12  # of a matrix; with more, the most frequent confusions are listed
MOST_CONFUSIONS = 12


def make(comparison: Comparison, sharing: int) -> dict[str, Any]:
    split = comparison.main_split
    return {"split": split, "runs": [run_confusion(run, split) for run in comparison.runs if len(run.labels(split))]}


def run_confusion(run: ComparedRun, split: str) -> dict[str, Any]:
    """Return a matrix of counts and shares, or a list of (true class, predicted class, count, samples of the class)."""
    y, predicted, n = run.labels(split), run.logits(split).argmax(1), len(run.classes)
    counts = np.bincount(y * n + predicted, minlength=n * n).reshape(n, n)
    confusion = {"label": run.label, "classes": run.classes, "matrix": None, "list": []}
    if n <= MOST_CLASSES:
        shares = (counts / counts.sum(1, keepdims=True).clip(1)).round(4)
        rows = zip(counts.tolist(), shares.tolist(), strict=True)
        return {**confusion, "matrix": [list(zip(row, share, strict=True)) for row, share in rows]}
    mistakes = counts.copy()
    np.fill_diagonal(mistakes, 0)
    frequent = [divmod(int(cell), n) for cell in np.argsort(-mistakes, axis=None, kind="stable")[:MOST_CONFUSIONS]]
    listed = [
        (run.classes[true], run.classes[taken], int(mistakes[true, taken]), int(counts[true].sum()))
        for true, taken in frequent
        if mistakes[true, taken]
    ]
    return {**confusion, "list": listed}
