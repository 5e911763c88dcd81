"""Compute curves over epochs as plain numbers, which a template draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 360, 220  # of a chart: text keeps its size on a phone, wide screens show several side by side
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 34
SIZE = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "bottom": BOTTOM}  # what a template must know

Series = tuple[str, int, Sequence[tuple[float, float]]]  # label, colour and points of a curve


@dataclass(frozen=True)
class Curve:
    """A curve is given as the points of an SVG polyline."""

    label: str
    color: int
    points: str


@dataclass(frozen=True)
class Chart:
    """A chart holds curves, with the marks of both axes."""

    title: str
    curves: list[Curve]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def line_chart(title: str, series: Sequence[Series], *, top: float | None = None) -> Chart:
    """Place curves in a chart that goes from zero to `top`, or to the largest value."""
    series = [(label, color, [p for p in points if is_finite(p[1])]) for label, color, points in series]
    xs = [x for _, _, points in series for x, _ in points]
    ys = [y for _, _, points in series for _, y in points]
    last = max(xs, default=1)
    most = top if top is not None else (max(ys, default=1) or 1)
    least = min(0.0, min(ys, default=0.0))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - 1) / (last - 1) if last > 1 else 0.5
        return (
            round(LEFT + across * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - (y - least) / ((most - least) or 1) * (HEIGHT - TOP - BOTTOM), 1),
        )

    curves = [
        Curve(label, color, " ".join("{},{}".format(*place(x, y)) for x, y in points))
        for label, color, points in series
    ]
    return Chart(
        title,
        curves,
        [(place(x, 0)[0], f"{x:g}") for x in _ticks(1, last)],
        [(place(1, y)[1], f"{y:.3g}") for y in (least + share * (most - least) for share in (0, 0.25, 0.5, 0.75, 1))],
    )


def is_finite(value: Any) -> bool:
    """Return whether a value can be drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


def _ticks(first: float, last: float) -> list[float]:
    """Return about four whole numbers."""
    step = max(1, math.ceil((last - first) / 4))
    return [first, *(x for x in range(step, math.floor(last) + 1, step) if x > first)]
