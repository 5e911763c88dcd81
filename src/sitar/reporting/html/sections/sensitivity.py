"""Show which axes each classifier uses: all of them on the axes of one VAE, and each on its own."""

from __future__ import annotations

from typing import Any

from sitar.reporting.comparison import Comparison
from sitar.reporting.html.axes import highest, reference_vaes, shares
from sitar.reporting.html.bars import Bar, Bars

MOST_AXES = 12  # that are shown


def make(comparison: Comparison, sharing: int) -> dict[str, Any] | None:
    shared, own = shared_axes(comparison), _own_axes(comparison)
    return {"shared": shared, "own": own} if shared or own else None


def shared_axes(comparison: Comparison) -> dict[str, Any] | None:
    """Return shares of every classifier's sensitivity along the axes of one VAE, the most suspicious axis first.

    Runs that were measured on different axes are not put side by side.
    """
    runs = [(run, part) for run in comparison.runs if (part := run.part("shared_axes"))]
    if len(reference_vaes(comparison)) != 1:
        return None
    first = runs[0][1]
    order = highest(first["v"], MOST_AXES)
    bars = [
        Bars(
            f"axis {first['axes'][i]}",
            f"v = {first['v'][i]:.2f}",
            [Bar(run.label, run.row, shares(part["values"])[i]) for run, part in runs],
        )
        for i in order
    ]
    return {
        "bars": bars,
        "run": first["run"],
        "n": first["n"],
        "left": len(first["axes"]) - len(order),
        "sums": [f"{sum(part['values']):.2f} ({run.label})" for run, part in runs],
    }


def _own_axes(comparison: Comparison) -> list[dict[str, Any]]:
    """Return shares of each classifier's sensitivity along its own axes, which have nothing in common but v."""
    cards = []
    for run in comparison.runs:
        if part := run.part("sensitivity"):
            share = shares(part["values"])
            order = highest(share, MOST_AXES)
            axes = [{"axis": part["axes"][i], "v": part["v"][i], "share": share[i]} for i in order]
            cards.append({"label": run.label, "color": run.row, "axes": axes, "left": len(share) - len(order)})
    return cards
