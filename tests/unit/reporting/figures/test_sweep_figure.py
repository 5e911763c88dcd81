"""The figure of a sweep: which form it takes, what it draws, and where the choice is marked."""

from __future__ import annotations

from typing import Any

import pytest

from sitar.reporting.figures.sweep_figure import sweep_figure
from sitar.reporting.tables.sweep import sweep_table


def point(values: dict[str, Any], score: float) -> dict[str, Any]:
    def summary(value: float) -> dict[str, Any]:
        return {"mean": value, "std": 0.02, "values": [value - 0.02, value + 0.02]}

    splits = {
        "val": {"average": summary(score)},
        "ood_test": {"average": summary(score / 2), "worst_group": summary(0.1)},
    }
    name = ",".join(f"{key}={value}" for key, value in values.items())
    about = {"control": False, "needs_groups": False, "seeds": [0, 1], "seconds": [1.0, 1.0]}
    return {"name": name, "values": values, "score": score, "splits": splits, **about}


def record(points: list[dict[str, Any]], *, search: bool = False) -> dict[str, Any]:
    best = max(points, key=lambda one: one["score"])["name"] if points else None
    return {
        "preset": "p/q", "over": {key: [] for key in (points[0]["values"] if points else ())}, "points": points,
        "chosen": best, "select": {"rule": "val_average", "metric": "average", "reads_groups": False},
        "search": {"name": "optuna", "trials": 9} if search else None, "unfinished": 0, "mixed_data": False,
    }  # fmt: skip


def test_one_number_is_lines_with_bands() -> None:
    figure = sweep_figure(
        record([point({"m.a": value}, score) for value, score in ((1.0, 0.6), (0.01, 0.9), (0.1, 0.7))])
    )
    assert figure is not None
    (plot,) = figure.axes
    lines = {line.get_label(): line for line in plot.get_lines() if not str(line.get_label()).startswith("_")}
    assert set(lines) == {"val average", "ood_test average", "ood_test worst group"}
    assert list(lines["val average"].get_xdata()) == [0.01, 0.1, 1.0]
    assert list(lines["val average"].get_ydata()) == pytest.approx([90, 70, 60])
    assert plot.get_xscale() == "log"
    low, high = plot.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == pytest.approx((58, 92)), "one standard deviation around the means"
    (chosen,) = plot.texts
    assert chosen.get_text() == "chosen"
    assert chosen.xy[0] == 0.01  # type: ignore[attr-defined]


def test_a_control_of_zero_has_a_place_on_a_wide_axis() -> None:
    figure = sweep_figure(record([point({"m.a": value}, 0.5) for value in (0.0, 0.01, 1.0)]))
    assert figure is not None
    assert figure.axes[0].get_xscale() == "symlog"
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0", "0.01", "1"]


@pytest.mark.parametrize(("axes", "search"), [(("m.a",), False), (("m.a", "m.b"), False), (("m.a",), True)])
def test_val_ood_is_drawn_in_the_place_of_val_where_it_chooses(axes: tuple[str, ...], search: bool) -> None:
    points = [point(dict.fromkeys(axes, value), 0.5) for value in (0.1, 1.0)]
    for one in points:
        one["splits"]["val_ood"] = {"worst_group": one["splits"]["val"]["average"]}
    select = {"rule": "val_ood_worst_group", "split": "val_ood", "metric": "worst_group", "reads_groups": True}
    figure = sweep_figure(record(points, search=search) | {"select": select})
    assert figure is not None
    drawn = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    drawn += [plot.get_title() for plot in figure.axes]
    assert "val_ood worst group" in drawn
    assert "val average" not in drawn
    if len(axes) == 2:
        assert figure.get_suptitle().endswith("the frame is chosen by val_ood")


def test_words_are_not_joined_by_a_line() -> None:
    figure = sweep_figure(record([point({"m.noise": word}, 0.5) for word in ("axis", "swap")]))
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["axis", "swap"]
    assert all(line.get_linestyle() in ("None", ":") for line in figure.axes[0].get_lines())


def test_two_settings_are_heat_maps_with_the_choice_framed() -> None:
    values = {(a, b): 0.5 + a / 10 + b / 1000 for a in (2, 1) for b in (20, 10)}
    figure = sweep_figure(record([point({"m.a": a, "m.b": b}, score) for (a, b), score in values.items()]))
    assert figure is not None
    maps = [plot for plot in figure.axes if plot.images]
    assert [plot.get_title() for plot in maps] == ["val average", "ood_test average", "ood_test worst group"]
    assert maps[0].images[0].get_array().tolist() == [[pytest.approx(61), pytest.approx(71)],
                                                      [pytest.approx(62), pytest.approx(72)]]  # fmt: skip
    (frame,) = maps[0].patches
    assert (frame.get_x(), frame.get_y()) == (0.5, 0.5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("keys", "search"), [(("m.a",), True), (("m.a", "m.b", "m.c"), False)])
def test_a_search_and_many_settings_have_a_panel_for_each(keys: tuple[str, ...], search: bool) -> None:
    points = [point({key: i + j for j, key in enumerate(keys)}, 0.5 + i / 10) for i in range(4)]
    figure = sweep_figure(record(points, search=search))
    assert figure is not None
    assert [plot.get_xlabel() for plot in figure.axes] == list(keys)
    assert all(len(plot.collections[0].get_offsets()) == 4 for plot in figure.axes)


def test_nothing_varied_and_nothing_finished_have_no_figure() -> None:
    assert sweep_figure(record([point({}, 0.5)])) is None
    unfinished = {**point({"m.a": 1}, 0.5), "seeds": [], "splits": {}, "score": None}
    assert sweep_figure({**record([point({"m.a": 1}, 0.5)]), "points": [unfinished], "chosen": None}) is None


def test_the_table_names_what_is_as_good_on_val() -> None:
    table = sweep_table(record([point({"m.a": 1}, 0.5), point({"m.a": 2}, 0.5), point({"m.a": 3}, 0.4)]))
    assert [row[-1] for row in table.rows] == ["chosen", "", ""]
    assert "As good on val: m.a=2." in table.note
