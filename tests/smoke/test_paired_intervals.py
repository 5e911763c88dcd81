"""reproduce/paired_intervals.py: the interval of a mean over tasks, by hand, and the tasks that the rule names."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, t

from helpers.scripts import ROOT, script
from sitar.reporting.paired import Difference


@pytest.fixture(scope="module")
def intervals() -> Any:
    return script("reproduce/paired_intervals.py")


def difference(each: list[float], common: float) -> Difference:
    """Make a difference whose seeds share this variance over other images, and have as much again of their own."""
    values = np.array(each)
    return Difference(values, values, np.full((len(each),) * 2, common) + common * np.eye(len(each)))


def test_a_mean_over_tasks_adds_seeds_and_images_as_squares(intervals: Any) -> None:
    first, second = difference([0.01, 0.03, 0.05], 1e-4), difference([0.00, 0.05, 0.04], 9e-4)
    of_seeds = np.array([0.005, 0.04, 0.045])
    over_seeds = t.ppf(0.975, 2) * of_seeds.std(ddof=1) / np.sqrt(3)
    over_images = norm.ppf(0.975) * (0.01 + 0.03) / 2  # as if both tasks erred alike
    half = np.hypot(over_seeds, over_images)
    found = intervals.mean_of([first, second])
    assert found.value == pytest.approx(of_seeds.mean())
    assert found.interval() == pytest.approx((of_seeds.mean() - half, of_seeds.mean() + half))


def test_one_task_alone_keeps_its_interval(intervals: Any) -> None:
    one = difference([0.01, 0.03, 0.05], 1e-4)
    assert intervals.mean_of([one]).interval() == pytest.approx(one.interval())
    seed = Difference(np.array([0.02]), np.array([0.02]), np.array([[4e-4]]))
    assert intervals.mean_of([seed, seed]).interval() == pytest.approx(seed.interval())


def test_the_tasks_are_those_with_an_easier_shortcut_that_are_not_for_tuning() -> None:
    when = script("reproduce/when.py")
    tasks = json.loads((ROOT / "reproduce" / "records" / "ease.json").read_text(encoding="utf-8"))["predictions"]
    named = {when.name_of(task) for task in tasks if task["difference"] > when.FAR and not task["tuning"]}
    assert set(script("reproduce/run.py").load_table("easier_shortcut")["columns"]) == named


def test_the_presets_of_ones_own_images_meet_the_same_tasks_and_these_with_roles_exchanged(intervals: Any) -> None:
    run = script("reproduce/run.py")
    own, benchmark = run.load_table("own_faces"), run.load_table("exchange")
    first, exchanged = intervals.groups(list(own["columns"])).values()
    assert first == list(run.load_table("easier_shortcut")["columns"])
    assert exchanged == [" with ".join(reversed(task.split(" with "))) for task in first]
    assert all(benchmark["columns"][name] == column for name, column in own["columns"].items())
    assert {row["preset"] for row in own["rows"].values()} == {"folder/control", "folder/sitar_best", "folder/erm"}
    settings = {tuple(row["set"]) for row in own["rows"].values()}
    assert settings == {
        ("data.name=celeba", "data.partition=exchange", "data.majority_only=true", "train.evaluate=[val,test]")
    }, "the presets as they are"


def test_the_settings_are_those_of_the_benchmark() -> None:
    run = script("reproduce/run.py")
    table, benchmark = run.load_table("easier_shortcut"), run.load_table("exchange")
    assert all(benchmark["rows"][name] == row for name, row in table["rows"].items())
    assert all(benchmark["columns"][name] == column for name, column in table["columns"].items())
