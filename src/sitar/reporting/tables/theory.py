"""Make what `sitar theory` prints: a table, and how fast the remainder falls, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sitar.reporting.tables.table import Table

SETTLED = 0.3  # slopes of the remainder that differ by more are not at their limit


def theory_table(theory: Mapping[str, Any]) -> Table:
    """Show what Theorem 1 predicts and the exact objective, one row for each strength of the noise."""
    own = theory["comparisons"][0]
    columns = ["alpha", "predicted", "exact", "remainder", *(name.replace("_", " ") for name in theory["terms"])]
    terms = list(theory["terms"].values())
    rows = []
    for i, alpha in enumerate(theory["alphas"]):
        mark = " *" if alpha == theory["alpha"] else ""
        objectives = [f"{values[i]:.6f}" for values in (theory["predicted"], own["exact"])]
        rows.append([f"{alpha:.3g}{mark}", *objectives, f"{own['remainder'][i]:.1e}", *(f"{t[i]:.2e}" for t in terms)])
    title = f"Theorem 1, {theory['noise']} noise ({own['distribution']}), lambda {theory['lambda']:g}"
    note = f"Means over {theory['samples']} samples of {theory['split']}; without noise {theory['clean']:.6f}. "
    note += "* is the run's alpha. The share of consistency includes lambda; the remainder is a mean of moduli."
    return Table(title, columns, rows, note)


def order_in_words(comparison: Mapping[str, Any], activation: str) -> str:
    """Say with which power of alpha the remainder falls, or why there is none."""
    distribution, order = comparison["distribution"], comparison["order"]
    expected = 3 if distribution == "skewed" else 4
    if (slope := unsettled_order(comparison)) is not None:
        return (
            f"{distribution} noise: the remainder is not at its limit yet, where alpha^{expected} is expected: its "
            f"slope still changes, and is {slope:.2f} at the smallest alphas."
        )
    if order is not None:
        return f"{distribution} noise: the remainder falls as alpha^{order:.2f} (expected: {expected})."
    if activation == "relu":
        return f"{distribution} noise: no order, as ReLU is not smooth and the theorem does not hold at its kinks."
    return f"{distribution} noise: no order, as the remainder is no larger than rounding."


def unsettled_order(comparison: Mapping[str, Any]) -> float | None:
    """Return the slope at the smallest alphas where the next slopes differ from it. The fitted order then means little.

    None: the slopes agree.
    """
    slopes = comparison.get("local_orders") or [0.0]  # which older files do not have
    return slopes[0] if max(slopes) - min(slopes) > SETTLED else None
