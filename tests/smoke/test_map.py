"""The map of gains: its settings come from the draw, its rules learn from one half, and its page from the records."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import binomtest

from helpers.scripts import ROOT, script


@pytest.fixture(scope="module")
def gain_map() -> Any:
    return script("reproduce/map.py")


@pytest.fixture(scope="module")
def drawn() -> Any:
    return script("reproduce/planted_settings.py")


def test_the_table_has_exactly_the_settings_of_the_draw(drawn: Any) -> None:
    table = yaml.safe_load((ROOT / "reproduce" / "planted.yaml").read_text(encoding="utf-8"))
    assert table["columns"] == drawn.settings()
    assert len(table["columns"]) == drawn.SIZE
    seeds = {words[-1] for words in table["columns"].values()}
    assert len(seeds) == drawn.SIZE, "every setting draws samples of its own"
    tuning = drawn.settings(drawn.TUNING_SIZE, drawn.TUNING_SEED)
    assert not seeds & {words[-1] for words in tuning.values()}, "no sample of the map was tuned on"


def test_longer_runs_have_the_first_settings(drawn: Any) -> None:
    table, longer = (
        yaml.safe_load((ROOT / "reproduce" / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("planted", "planted_longer")
    )
    assert longer["columns"] == dict(list(table["columns"].items())[: drawn.FIRST])


def test_auto_has_the_same_settings_and_was_chosen_on_others(drawn: Any) -> None:
    table, auto = (
        yaml.safe_load((ROOT / "reproduce" / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("planted", "auto_planted")
    )
    assert auto["columns"] == table["columns"]
    assert not set(auto["seeds"]) & set(table["seeds"])
    rule = script("reproduce/auto_rule.py")
    others = drawn.settings(rule.SIZE, rule.SETTINGS_SEED).values()
    assert not {words[-1] for words in others} & {words[-1] for words in table["columns"].values()}
    assert rule.SEED >= 100


def test_each_number_of_shortcuts_has_the_same_settings_and_none_is_of_the_map(drawn: Any) -> None:
    tables = [
        yaml.safe_load((ROOT / "reproduce" / f"{name}.yaml").read_text(encoding="utf-8"))["columns"]
        for name in ("planted", "planted_shortcuts")
    ]
    assert tables[1] == drawn.with_shortcuts()
    columns = {name: dict(word.split("=") for word in words) for name, words in tables[1].items()}
    assert len(columns) == drawn.NUMBERS_SIZE * len(drawn.NUMBERS)
    for name, knobs in columns.items():
        setting, number = name.split(", ")
        assert knobs["data.shortcuts"] == number.split()[0]
        assert knobs | {"data.shortcuts": "1"} == columns[f"{setting}, 1 shortcut"]
    seeds = {f"data.seed={knobs['data.seed']}" for knobs in columns.values()}
    others = [drawn.settings(drawn.TUNING_SIZE, drawn.TUNING_SEED), tables[0]]
    assert not seeds & {word for columns in others for words in columns.values() for word in words}


def test_settings_fill_the_ranges(drawn: Any) -> None:
    found = [drawn.values(list(point)) for point in np.random.default_rng(0).random((400, len(drawn.KNOBS)))]
    assert {value["rho"] for value in found} == set(drawn.RHOS)
    assert {value["features"] for value in found} == set(drawn.FEATURES)
    for cue in ("core", "shortcut"):
        assert {value[f"{cue}_parts"] for value in found} == {1, 2, 3, 4}
        assert np.mean([value[f"{cue}_bend"] == 0 for value in found]) == pytest.approx(1 / 3, abs=0.08)
        strengths = [value[f"{cue}_strength"] for value in found]
        assert 0.75 <= min(strengths) < 0.8
        assert 3.8 < max(strengths) <= 4


def test_the_tuning_took_what_its_rule_says() -> None:
    tuning = script("reproduce/planted_tuning.py")
    record = json.loads(tuning.RECORD.read_text(encoding="utf-8"))
    assert record["chosen"]["sitar_best"] == list(tuning.choose(record["runs"], tuning.OTHERS))
    best = yaml.safe_load((ROOT / "src/sitar/presets/planted/sitar_best.yaml").read_text(encoding="utf-8"))["method"]
    assert [best["noise"], best["alpha"], best["lambda"]] == record["chosen"]["sitar_best"]

    def runs(core: float) -> list[dict[str, Any]]:
        scores = {tuning.CONTROL: (0.2, 0.8), tuning.AXIS[0]: (0.3, 0.79), tuning.AXIS[1]: (0.9, core)}
        names = ("noise", "alpha", "lambda")
        return [
            {**dict(zip(names, candidate, strict=True)), "worst_group": worst, "core_auc": auc}
            for candidate, (worst, auc) in scores.items()
        ]

    assert tuning.choose(runs(0.79), tuning.AXIS[:2]) == tuning.AXIS[1]
    assert tuning.choose(runs(0.6), tuning.AXIS[:2]) == tuning.AXIS[0], "it has lost the core"


def test_a_method_helps_only_if_all_seeds_agree(gain_map: Any) -> None:
    assert gain_map.outcome([2, 3, 0.5]) == "helps"
    assert gain_map.outcome([9, 3, -0.5]) == "nothing"
    assert gain_map.outcome([-2, -3, -0.5]) == "costs"
    assert gain_map.outcome([0.9, 0.8, 0.7]) == "nothing"


def test_several_shortcuts_are_compared_with_one_setting_by_setting(gain_map: Any) -> None:
    of = gain_map.by_number(
        {
            "setting 0, 1 shortcut": [1.0, 3.0],
            "setting 0, 4 shortcuts": [7.0, 9.0],
            "setting 1, 1 shortcut": [0.0, 1.0],
            "setting 1, 4 shortcuts": [0.0, -1.0],
        }
    )
    assert of["1 shortcut"] == {"setting 0": 2.0, "setting 1": 0.5}
    assert gain_map.against_one(of) == {"4 shortcuts": [6.0, -1.0]}


def test_the_interval_of_a_share_is_wilsons(gain_map: Any) -> None:
    for right, n in ((0, 9), (7, 9), (20, 31)):
        theirs = binomtest(right, n).proportion_ci(method="wilson")
        assert gain_map.wilson(right, n) == pytest.approx((theirs.low, theirs.high), abs=1e-3)


def test_a_rule_is_learned_from_one_half_and_scored_on_the_other(gain_map: Any) -> None:
    random = np.random.default_rng(0)
    rows = {f"s{i}": {"d": float(d), "noise": float(n)} for i, (d, n) in enumerate(random.normal(size=(80, 2)))}
    sign = {name: 1 if row["d"] > 0.2 else -1 for name, row in rows.items()}
    learned, held = gain_map.halves(list(rows))
    assert (len(learned), len(held)) == (40, 40)
    assert not set(learned) & set(held)
    others = {name: rows[name] for name in held}
    shares = {}
    for key in ("d", "noise"):
        rule = gain_map.Rule(key, (key,), "")
        predict, told = gain_map.learn(rule, {name: rows[name] for name in learned}, sign)
        found = gain_map.score(predict, others, sign, (key,))
        assert found["n"] == 40
        shares[key] = found["right"] / 40
        logit = told["intercept"] + told["coefficients"][key] * others[held[0]][key]
        assert predict(others[held[0]]) == (1 if logit > 0 else -1)
    assert shares["d"] > 0.9
    assert shares["noise"] < 0.75


def test_a_rule_must_beat_the_more_frequent_sign(gain_map: Any) -> None:
    same = {"metric": "m", "gain": "g"}
    plain = {**same, "rule": "always", "given": "nothing", "sign": 1, "scored": {"n": 20, "right": 14}}
    good = {
        **same,
        "rule": "r",
        "given": "x",
        "coefficients": {"d": 1.0},
        "scored": {"n": 20, "right": 19, "low": 0.76},
    }
    assert gain_map.beats_chance(good, [plain, good])
    assert not gain_map.beats_chance({**good, "scored": {"n": 20, "right": 17, "low": 0.64}}, [plain, good])
    assert not gain_map.beats_chance(good, [plain, good], "exchange"), "it was not scored there"


def test_the_rules_and_the_page_are_what_the_records_say(gain_map: Any) -> None:
    recorded = json.loads(gain_map.RULES.read_text(encoding="utf-8"))["rules"]
    again = gain_map.scored_rules()
    assert [(rule["rule"], rule["gain"], rule["metric"]) for rule in recorded] == [
        (rule["rule"], rule["gain"], rule["metric"]) for rule in again
    ]
    assert [rule["scored"] for rule in recorded] == [rule["scored"] for rule in again]
    assert [rule.get("exchange") for rule in recorded] == [rule.get("exchange") for rule in again]
    assert gain_map.PAGE.read_text(encoding="utf-8") == gain_map.render()
