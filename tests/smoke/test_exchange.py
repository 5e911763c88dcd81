"""The exchange benchmark: its pairs come from the rule, predictions from ease, and their score from the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from helpers.scripts import ROOT, script
from sitar.data.benchmarks.celeba import CelebA, CelebAConfig


@pytest.fixture(scope="module")
def pairs() -> Any:
    return script("reproduce/exchange_pairs.py")


@pytest.fixture(scope="module")
def ease() -> Any:
    return script("reproduce/ease.py")


@pytest.fixture(scope="module")
def when() -> Any:
    return script("reproduce/when.py")


def table() -> dict[str, Any]:
    return script("reproduce/run.py").load_table("exchange")


def recorded() -> dict[str, Any]:
    return json.loads((ROOT / "reproduce" / "records" / "ease.json").read_text(encoding="utf-8"))


@pytest.mark.data
def test_the_table_has_exactly_the_pairs_of_the_rule_in_both_roles(pairs: Any, test_data: Path) -> None:
    chosen = pairs.choose(test_data / "celeba")
    roles = [(roles, pair.tuning) for pair in chosen for roles in (pair[:2], pair[1::-1])]
    columns = {
        f"{label} with {other}": [f"data.label={label}", f"data.attribute={other}"] for (label, other), _ in roles
    }
    assert table()["columns"] == columns
    assert list(table()["columns"]) == list(columns), "in this order"
    assert table()["left_out"] == [f"{label} with {other}" for (label, other), tuning in roles if tuning]
    assert len(chosen) == 12
    assert sum(pair.tuning for pair in chosen) == 4
    assert [(task["label"], task["attribute"], task["tuning"]) for task in recorded()["predictions"]] == [
        (*names, tuning) for names, tuning in roles
    ]


@pytest.mark.data
def test_the_size_of_a_pair_is_its_smallest_group_in_the_test(pairs: Any, test_data: Path) -> None:
    for pair in pairs.choose(test_data / "celeba")[1:4]:
        root = str(test_data / "celeba")
        for label, attribute in (pair[:2], pair[1::-1]):
            config = CelebAConfig(root=root, label=label, attribute=attribute, partition="exchange", majority_only=True)
            assert min(CelebA.samples(config).counts()["test"].values()) == pair.size


def test_added_pairs_are_of_different_features_and_no_two_alike(pairs: Any) -> None:
    names = [pair for column in list(table()["columns"])[::2] for pair in [column.split(" with ")]]
    added = names[len(pairs.NAMED) :]
    features = [frozenset(pairs.FEATURE[name] for name in pair) for pair in names]
    assert all(len(pair) == 2 for pair in features)
    assert all(features.count(frozenset(pairs.FEATURE[name] for name in pair)) == 1 for pair in added)
    assert len(pairs.FEATURE) == 40
    assert set(pairs.FEATURE) == set(recorded()["ease"])


def test_ease_is_measured_on_other_images_than_those_that_fit_it(ease: Any) -> None:
    """Two axes of pixels: the first tells one attribute, and no axis the other. No image of the test is read."""
    random = np.random.default_rng(0)
    place = np.arange(2000) % 20
    told, untold = random.integers(0, 2, (2, 2000))
    x = random.integers(0, 60, (2000, 12)).astype(np.uint8)
    x[:, :6] += (told * random.integers(20, 60, 2000))[:, None].astype(np.uint8)
    found = ease.ease_of(x, place, {"told": told, "untold": untold}, axes=2)
    assert found["told"] > 0.8
    assert abs(found["untold"] - 0.5) < 0.1
    untouched = x.copy()
    untouched[place < 10] = 0
    assert ease.ease_of(untouched, place, {"told": told}, axes=2)["told"] == found["told"]
    fit, measure = (place >= 10) & (place < 17), place >= 17
    plain = LogisticRegression(class_weight="balanced", max_iter=1000).fit(x[fit] / 255, told[fit])
    expected = balanced_accuracy_score(told[measure], plain.predict(x[measure] / 255))
    assert found["told"] == pytest.approx(expected, abs=0.06)


def test_a_prediction_follows_the_rule_and_nothing_is_predicted_within_the_band(ease: Any) -> None:
    assert ease.predict(0.60, 0.70) == {"difference": 0.1, "sitar over control": 1, "control over ERM": -1}
    assert ease.predict(0.70, 0.60) == {"difference": -0.1, "sitar over control": -1, "control over ERM": 1}
    assert ease.predict(0.60, 0.64)["sitar over control"] == ease.predict(0.64, 0.60)["control over ERM"] == 0
    record = recorded()
    for task in record["predictions"]:
        again = ease.predict(record["ease"][task["label"]], record["ease"][task["attribute"]])
        assert {key: task[key] for key in again} == again


def made_run(row: str, column: str, seed: int, worst: float) -> dict[str, Any]:
    return {"row": row, "column": column, "seed": seed, "splits": {"test": {"worst_group": worst}}}


def test_the_score_counts_signs_of_gains_without_the_tasks_for_tuning(when: Any) -> None:
    tasks = [
        {"label": label, "attribute": "s", "tuning": label == "d", "difference": 0.1 * sign, "gain": sign}
        for label, sign in (("a", 1), ("b", -1), ("c", 0), ("d", 1), ("e", 1))
    ]
    gain = when.Gain("gain", "gain", "mine", "reference")
    runs = [made_run("reference", f"{label} with s", seed, 0.5) for label in "abcd" for seed in (0, 1)]
    runs += [
        made_run("mine", f"{label} with s", 0, worst) for label, worst in zip("abcd", (0.6, 0.6, 0.9, 0.9), strict=True)
    ]
    runs += [
        made_run("mine", "a with s", 1, 0.45),
        made_run("mine", "b with s", 1, 0.3),
        made_run("mine", "b with s", 2, 1),
    ]
    found = when.gains({"runs": runs}, gain)
    assert found["a with s"] == pytest.approx([10, -5])
    assert found["b with s"] == pytest.approx([10, -20]), "seed 2 has no reference"
    assert when.score(tasks, found, "gain") == (2, 2), "e was not run, c has no prediction, d is for tuning"
    worse = {**found, "a with s": [-1.0, -1.0]}
    assert when.score(tasks, worse, "gain") == (1, 2)


def test_the_target_is_asked_of_tasks_with_a_far_easier_shortcut(when: Any) -> None:
    """Its intervals pair the seeds, and leave out a seed that a task has not."""
    tasks = [
        {"label": label, "attribute": "s", "tuning": label == "d", "difference": difference}
        for label, difference in (("a", 0.2), ("b", 0.11), ("c", 0.1), ("d", 0.3))
    ]
    gained = {"a": (0.059, 0.061, 0.9), "b": (0.06, 0.06), "c": (-0.5, -0.5), "d": (-0.5, -0.5)}
    first, second = when.GAINS[:2]
    for far, reached in ((0.0, "met"), (-0.02, "missed, for the mean is below 5 points")):
        runs = [
            made_run(row, f"{label} with s", seed, 0.3 + seed / 10 + (gain + far if row == first.row else 0.0))
            for row in (first.row, first.reference)
            for label, each in gained.items()
            for seed, gain in enumerate(each)
        ]
        lines = when.target(tasks, {"runs": runs})
        assert f"- *{first.name}*: the target is {reached}." in lines
        mean, half = 6 + 100 * far, 12.7062 * 0.05  # the gains of seeds 0 and 1 are this far from their mean
        assert lines[2].startswith(f"| {first.name} | 2 | {mean:+.1f} | {mean - half:+.1f} to {mean + half:+.1f} | ")
    assert lines[3] == f"| {second.name} | 0 | not run yet | | |"


def test_the_page_and_the_figure_are_made_of_the_records(
    when: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every gain is as predicted, so every sign is right; then one is turned round."""
    rows = {gain.row for gain in when.GAINS} | {gain.reference for gain in when.GAINS}
    level = {
        "ERM": 0.0,
        "control, 10 axes": -0.1,
        "control, 32 axes": -0.1,
        "sitar, 10 axes": 0.1,
        "sitar, 32 axes": 0.1,
    }
    assert rows == set(level)
    record = {
        "runs": [
            made_run(row, when.name_of(task), seed, 0.5 + level[row] * task["sitar over control"])
            for task in when.predictions()
            for row in rows
            for seed in (0, 1)
        ]
    }
    monkeypatch.setattr(when.records, "record_so_far", lambda name: {"runs": []})
    assert "The runs were not made yet" in when.render()
    monkeypatch.setattr(when.records, "record_so_far", lambda name: record)
    page = when.render()
    assert "The runs were not made yet" not in page
    assert "| sitar over control, 32 axes | 16 | 16 |" in page
    assert "| control over ERM, 10 axes | 16 | 16 |" in page
    assert "| Smiling with Male | +0.143 | +20.0 (+) | +20.0 (+) | -10.0 (−) | -10.0 (−) |" in page
    for run in record["runs"]:
        if run["row"] == "sitar, 32 axes" and run["column"] == "Smiling with Male":
            run["splits"]["test"]["worst_group"] = 0.0
    assert "| sitar over control, 32 axes | 15 | 16 |" in when.render()
    points = [line for plot in when.draw().axes for line in plot.get_lines() if line.get_marker() == "o"]
    assert len(points) == 2 * len(when.predictions())


def test_the_second_rule_counts_tuning_and_other_tasks_apart(when: Any) -> None:
    """The shortcut of a task is the label of the other, so ease is measured once for both."""
    ease = {"A with B": 0.9, "B with A": 0.7, "C with D": 0.80, "D with C": 0.82}
    runs = [
        {"row": when.ORACLE, "column": task, "seed": 0, "splits": {"val": {"core_auc": value}}}
        for task, value in ease.items()
    ]
    found = when.network_ease({"runs": runs})
    assert found == pytest.approx({"A with B": -20, "B with A": 20, "C with D": 2, "D with C": -2})
    tasks = [{"label": task[0], "attribute": task[-1], "tuning": task in ("B with A", "C with D")} for task in ease]
    gains = {gain: {task: [100 * 0.1 * found[task]] for task in ease} for gain in when.GAINS}
    table = when.second_rule(tasks, gains, found)
    assert "| control over ERM, 10 axes | 1 | 1 | 1 | 1 |" in table, "two tasks lie within the band"
    assert "| sitar over control, 32 axes | 0 | 1 | 0 | 1 |" in table, "it says the other sign for the noise"
