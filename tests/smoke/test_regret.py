"""reproduce/regret.py: what is lost by leaving a run alone, by hand for small records, and the page of the record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.scripts import script
from sitar.functional.gate import TAU

ROWS = ("ERM", "control, 10 axes", "sitar, 10 axes")


@pytest.fixture(scope="module")
def regret():
    return script("reproduce/regret.py")


def auto_run(column: str, chosen: str, **values: float) -> dict[str, Any]:
    return {
        "column": column,
        "splits": {"test": {"worst_group": values[chosen]}},
        "selections": {name: {"test": {"worst_group": value}} for name, value in values.items()},
        "auto": {"chosen": chosen},
    }


def test_regret_is_against_the_best_mean_over_seeds(regret) -> None:
    runs = [
        auto_run("a", "erm", erm=0.2, control=0.5, sitar=0.3),
        auto_run("a", "sitar", erm=0.6, control=0.3, sitar=0.5),
        auto_run("b", "sitar", erm=0.1, control=0.1, sitar=0.9),
    ]
    tasks = regret.tasks_of(runs, "test", "worst_group")
    assert tasks["a"]["chose sitar"] == 0.5
    assert regret.regret(tasks["a"], "auto") == pytest.approx(0.4 - 0.35)  # best: ERM and control and SITAR have 0.4
    assert regret.regret(tasks["b"], "auto") == 0
    assert regret.regret(tasks["b"], "erm") == pytest.approx(0.8)


def test_tasks_of_ones_own_images_are_judged_by_worst_group_or_by_the_average_without_a_shortcut(regret) -> None:
    def run(task: str, average: float, worst_group: float) -> dict[str, Any]:
        values = {"average": average, "worst_group": worst_group}
        of = {"erm": values, "sitar": {"average": 0.5, "worst_group": 0.5}}
        return {"task": task, "last": values, "candidates": of, "auto": {"chosen": "erm"}}

    record = {"runs": [run("colour = label", 0.8, 0.1), run("no shortcut, digits", 0.9, 0.7), {"task": "another row"}]}
    (with_one,), (without,) = (regret.own_images(record, metric) for metric in ("worst_group", "average"))
    assert (with_one, without) == ("colour = label", "no shortcut, digits")
    task = regret.own_images(record, "worst_group")["colour = label"]
    assert regret.regret(task, "auto") == pytest.approx(0.4)
    assert regret.own_images(record, "average")["no shortcut, digits"]["auto"] == 0.9


def exchange(values: dict[str, tuple[float, float, float]]) -> dict[str, Any]:
    return {
        "runs": [
            {"column": column, "row": row, "splits": {"test": {"worst_group": value}}}
            for column, of in values.items()
            for row, value in zip(ROWS, of, strict=True)
        ]
    }


def test_no_rule_chooses_otherwise_in_the_two_roles_of_a_pair(regret) -> None:
    """Always ERM loses 0.3 in one role of the first pair, always the control 0.1 in the other: the control it is."""
    record = exchange({
        "a with b": (0.2, 0.5, 0.4), "b with a": (0.5, 0.4, 0.3),
        "c with d": (0.1, 0.2, 0.9), "d with c": (0.1, 0.2, 0.8),
    })  # fmt: skip
    assert regret.least_regret(record, 10) == (pytest.approx((0.1 / 2 + 0) / 2), 2)


def test_what_auto_would_choose_on_faces_follows_from_the_gate(regret) -> None:
    def run(row: str, seed: int, label: float, exchanged: float, **more: Any) -> dict[str, Any]:
        roles = {"label": {"worst_group": label}, "exchanged": {"worst_group": exchanged}}
        return {"pair": "A_b_with_C", "row": row, "seed": seed, "again": 0, **roles, **more}

    runs = [
        run("ERM", 0, 0.1, 0.6), run("control", 0, 0.2, 0.5, gate={"swap": TAU}), run("swap, alpha 1", 0, 0.3, 0.4),
        run("ERM", 1, 0.1, 0.6), run("control", 1, 0.2, 0.5, gate={"swap": TAU - 0.01}),
        run("swap, alpha 1", 1, 0.3, 0.4), run("control", 2, 0.9, 0.9, gate={"swap": 1.0}),
    ]  # fmt: skip
    tasks = regret.faces({"runs": runs})
    assert list(tasks) == ["A_b with C", "C with A_b"]
    assert tasks["A_b with C"]["auto"] == pytest.approx((0.3 + 0.1) / 2)  # open in seed 0; seed 2 is not complete
    assert tasks["C with A_b"]["auto"] == pytest.approx((0.4 + 0.6) / 2)
    assert tasks["C with A_b"]["seeds"] == 2


def test_the_bank_counts_where_there_are_images(regret) -> None:
    images = regret.tasks_of([auto_run("a", "bank", erm=0.2, control=0.5, sitar=0.3, bank=0.4)], "test", "worst_group")
    assert regret.regret(images["a"], "auto") == pytest.approx(0.1)
    assert regret._chosen([images["a"]]) == "bank 100 %"
    features = regret.tasks_of([auto_run("a", "erm", erm=0.2, control=0.5, sitar=0.3)], "test", "worst_group")
    assert "bank" not in features["a"]
    assert regret._chosen([features["a"], images["a"]]) == "ERM 50 %, bank 50 %"


def test_gains_are_counted_against_erm(regret) -> None:
    runs = [
        auto_run("a", "erm", erm=0.2, control=0.5, sitar=0.3),
        auto_run("b", "sitar", erm=0.2, control=0.5, sitar=0.5),
        auto_run("c", "sitar", erm=0.2, control=0.5, sitar=0.1),
    ]
    (line,) = [line for line in regret._gains({"x": regret.tasks_of(runs, "test", "worst_group")}) if "| x |" in line]
    assert line == "| x | +6.7 | 30.0 | 10.0 | 1 of 3 |"


def test_columns_without_a_shortcut_are_found_in_every_table(regret) -> None:
    titles = " ".join(regret.without_shortcut())
    assert all(name in titles for name in ("auto_planted", "auto_demo", "auto_color_mnist", "auto_sites"))
    assert "auto_bar" not in titles


def test_the_target_is_missed_or_met_on_each_line(regret) -> None:
    tasks = regret.tasks_of([auto_run("a", "erm", erm=0.2, control=0.25)], "test", "worst_group")
    words = " ".join(
        regret._target({"far (`x`)": tasks, "near (`y`)": {"b": {**tasks["a"], "auto": 0.22}}, "none": None})
    )
    assert "It is missed on: far (5.0)." in words
    assert "It is met on: near (3.0)." in words
    assert "none" not in words


def test_the_page_is_what_the_records_say(regret) -> None:
    assert json.loads(regret.RECORD.read_text(encoding="utf-8")) == regret.sums()
    assert regret.PAGE.read_text(encoding="utf-8") == regret.render()
