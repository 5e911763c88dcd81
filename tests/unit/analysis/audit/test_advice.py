"""The advice of an audit says what the map of gains has counted, and no more."""

from __future__ import annotations

import pytest

from helpers.scripts import script
from sitar.analysis.audit.advice import OVER_CONTROL, OVER_ERM, advice


def test_the_counts_are_those_of_the_map() -> None:
    gain_map = script("reproduce/map.py")
    record = gain_map.records.load_record("planted")
    over_control, over_erm = (gain_map.by_verdict(record, gain) for gain in gain_map.GAINS[:2])
    assert [gain.name for gain in gain_map.GAINS[:2]] == ["sitar over control", "sitar over ERM"]
    assert over_control == OVER_CONTROL
    assert over_erm == OVER_ERM


def test_no_rule_that_reads_labels_alone_beats_chance() -> None:
    """The advice says so. If a rule does one day, the advice must be written anew."""
    gain_map = script("reproduce/map.py")
    rules = gain_map.json.loads(gain_map.RULES.read_text(encoding="utf-8"))["rules"]
    of_the_noise = [
        rule
        for rule in rules
        if rule["given"] == "labels alone" and rule["gain"].startswith("sitar over") and rule["metric"] == "worst group"
    ]
    assert len(of_the_noise) == 6
    assert not [rule["rule"] for rule in of_the_noise if gain_map.beats_chance(rule, rules)]


@pytest.mark.parametrize("kind", ["tells", "nothing"])
def test_the_advice_names_gains_and_losses_alike(kind: str) -> None:
    words = advice(kind)
    assert words is not None
    control, erm = OVER_CONTROL[kind], OVER_ERM[kind]
    assert f"On {sum(control)} sets of generated features" in words
    counted = f"helped the worst group on {control.helps}, did nothing on {control.nothing} and cost on {control.costs}"
    assert counted in words
    assert f"compared with ERM {erm.helps}, {erm.nothing} and {erm.costs}" in words
    assert ("samples that contradict the cue" in words) == (kind != "nothing")


def test_nothing_is_counted_where_label_and_cue_can_be_exchanged() -> None:
    words = advice("cannot tell")
    assert words is not None
    assert "This data cannot say" in words
    assert not any(letter.isdigit() for letter in words)


def test_too_few_samples_get_no_advice() -> None:
    assert advice("too few") is None
