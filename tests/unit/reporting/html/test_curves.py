"""Curves over epochs."""

from __future__ import annotations

from sitar.reporting.html.curves import line_chart


def test_a_curve_runs_from_left_to_right_and_up_where_values_rise() -> None:
    chart = line_chart("a", [("x", 0, [(1, 0.0), (2, 0.5), (3, 1.0)])], top=1.0)
    points = [tuple(map(float, point.split(","))) for point in chart.curves[0].points.split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert line_chart("one", [("x", 0, [(1, 0.3)])]).curves[0].points
    assert line_chart("none", []).curves == []
