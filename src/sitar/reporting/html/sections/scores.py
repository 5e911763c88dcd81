"""Show the shortcut score v of the axes over epochs."""

from __future__ import annotations

from typing import Any

from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.axes import highest
from sitar.reporting.html.curves import SIZE, Chart, is_finite, line_chart

MOST_AXES = 8  # that are drawn, the largest at the end


def make(comparison: Comparison, sharing: int) -> dict[str, Any] | None:
    charts = [chart for run in comparison.runs if (chart := score_curves(run))]
    return {"charts": charts, "size": SIZE} if charts else None


def score_curves(run: ComparedRun) -> Chart | None:
    """Return v over epochs, of the axes on which it is largest at the end."""
    lines = [
        (place, v)
        for place, line in enumerate(run.epochs, 1)
        if (v := line.get("shortcut_score")) and all(map(is_finite, v))
    ]
    if not lines:
        return None
    last = lines[-1][1]
    lines = [(place, v) for place, v in lines if len(v) == len(last)]
    series = [
        (f"axis {axis}", color, [(place, v[axis]) for place, v in lines])
        for color, axis in enumerate(highest(last, MOST_AXES))
    ]
    title = run.label + (f" (the {MOST_AXES} largest of {len(last)} axes)" if len(last) > MOST_AXES else "")
    return line_chart(title, series, top=1.0)
