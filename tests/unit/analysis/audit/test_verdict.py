"""The rule that turns scores into words, on generated latents and at its borders."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from helpers.scripts import script
from sitar.analysis.audit.scores import Score, accuracy, resample
from sitar.analysis.audit.verdict import GAP, LIFT, Verdict, above_chance, judge, least_lead, too_few

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def rule() -> ModuleType:
    """reproduce/audit_rule.py, which fixed the rule."""
    return script("reproduce/audit_rule.py")


def test_the_rule_is_the_recorded_one() -> None:
    record = json.loads((ROOT / "reproduce" / "records" / "audit_rule.json").read_text())
    assert (record["lift"], record["gap"]) == (LIFT, GAP)
    for rates in record["no cue"].values():
        assert rates["one"] + rates["several"] <= 0.01


@pytest.mark.parametrize(
    ("cues", "rho", "kind"), [(0, 0.0, "none"), (1, 0.9, "one"), (1, 0.5, "none"), (2, 0.9, "several")]
)
@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_generated_latents_are_judged_as_they_were_made(
    rule: ModuleType, cues: int, rho: float, kind: str, seed: int
) -> None:
    mu, y = rule.latents(4000, 10, 2, cues, rho, torch.Generator().manual_seed(seed))
    found = accuracy(mu[1000:], y[1000:], mu[:1000], y[:1000], 2, resample(y[:1000], 200))
    verdict = judge(found, 2, range(10))
    assert verdict.kind == kind
    assert set(verdict.axes) == {"none": set(), "one": {9}, "several": {8, 9}}[kind]


def scored(*values: float, spread: float = 0.02) -> Score:
    """Accuracies whose resamples are spread evenly, all axes alike."""
    value = torch.tensor(values, dtype=torch.float64)
    return Score(value, value + torch.linspace(-spread, spread, 101).unsqueeze(1))


def judged(*values: float, classes: int) -> Verdict:
    return judge(scored(*values), classes, range(len(values)))


def test_axes_that_the_vae_does_not_use_do_not_count() -> None:
    verdict = judge(scored(0.95, 0.55, 0.85, 0.6), 2, [1, 2, 3])
    assert (verdict.kind, verdict.axes) == ("one", (2,))
    assert verdict.words.startswith("Axis 2 alone predicts the label with 0.85")
    assert judge(scored(0.95, 0.55), 2, [1]).kind == "none"
    several = judge(scored(0.95, 0.55, 0.85, 0.84), 2, [1, 2, 3])
    assert (several.kind, several.axes) == ("several", (2, 3))
    collapsed = judge(scored(0.95, 0.55), 2, [])
    assert collapsed.kind == "nothing encoded"
    assert "train.epochs" in collapsed.words
    assert "Axis 0 predicts the label with 0.95 all the same" in collapsed.words
    assert "all the same" not in judge(scored(0.55, 0.52), 2, []).words


def test_the_words_say_what_was_measured() -> None:
    words = judged(0.61, 0.52, 0.83, classes=2).words
    assert words.startswith(
        "Axis 2 alone predicts the label with 0.83 [0.81, 0.85] (chance 0.50), the next axis with 0.61"
    )
    assert "one cheap cue stands out" in words
    assert judged(0.55, 0.6, classes=2).words.startswith("Nothing stands out: the best axis, 1, predicts")
    assert "from 0.70 on" in judged(0.55, 0.6, classes=2).words
    assert "(chance 0.25)" in judged(0.5, 0.9, classes=4).words


@pytest.mark.parametrize(
    ("accuracies", "classes", "kind", "axes"),
    [
        ((0.90, 0.60), 2, "one", (0,)),
        ((0.80, 0.90, 0.89, 0.5), 2, "several", (1, 2, 0)),
        ((0.60, 0.50), 2, "none", ()),
        ((0.70, 0.50), 2, "unclear", (0,)),
        ((0.60, 0.30), 4, "one", (0,)),  # the same accuracy, four classes
        ((0.90,), 2, "one", (0,)),
        ((0.50,), 2, "none", ()),
    ],
)
def test_kinds(accuracies: tuple[float, ...], classes: int, kind: str, axes: tuple[int, ...]) -> None:
    verdict = judged(*accuracies, classes=classes)
    assert (verdict.kind, verdict.axes) == (kind, axes)


def test_a_lead_is_that_of_the_same_resample() -> None:
    """Both axes move together, so that their difference is sure although neither is."""
    lift = above_chance(scored(0.9, 0.8, spread=0.1), 2)
    assert least_lead(lift) == pytest.approx(0.2)
    opposite = Score(lift.value, torch.stack([lift.draws[:, 0], lift.draws[:, 1].flip(0)], 1))
    assert least_lead(opposite) == pytest.approx(0.2 - 2 * 0.2 * 0.95)


def test_few_samples_are_named() -> None:
    assert too_few({"cat": 20, "dog": 4000}) is None
    verdict = too_few({"cat": 300, "dog": 19})
    assert verdict is not None
    assert verdict.kind == "too few"
    assert verdict.words.startswith("Too few samples to say: class 'dog' has 19 held out, and at least 20")
