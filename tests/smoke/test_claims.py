"""The paper's claims: a verdict follows from its rule and its figures, and the page says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers.scripts import ROOT, script

from .test_reproduce import TABLE, made

CLAIMS = """\
- claim: More is better
  section: Sec. 1
  quote: It helps.
  figures:
    gain: ["accuracy at high less that at low", "t; a; high - low; OOD"]
  holds: gain.lower > 0
  holds in part: gain.mean > 0 and gain.seeds > 1
  note: The mean is {{ t; a; high; OOD; mean }}.
- claim: It waits
  section: Sec. 2
  quote: It is cheap.
  figures:
    cost: ["cost", "later.json: here.cost"]
  holds: cost.mean < 2
- claim: Elsewhere
  section: Sec. 3
  quote: It flies.
  cannot be tested here: There are no wings.
"""


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The claims over a made-up table."""
    module = script("reproduce/claims.py")
    monkeypatch.setattr(module.records, "HERE", tmp_path)
    (tmp_path / "records").mkdir()
    (tmp_path / "t.yaml").write_text(TABLE, encoding="utf-8")
    (tmp_path / "claims.yaml").write_text(CLAIMS, encoding="utf-8")
    return module


def record(claims, gains: list[float]) -> None:
    runs = [made("a", "low", seed, 0.5) for seed in range(2)]
    runs += [made("a", "high", seed, 0.5 + gain) for seed, gain in enumerate(gains)]
    claims.records.write_record("t", runs, {})


def verdict(claims) -> str:
    claim = claims.load()[0]
    return claims.verdict(claim, claims.samples(claim))


def test_the_verdict_follows_the_record(claims) -> None:
    for gains, said in (
        ([0.10, 0.11], "holds"),
        ([0.01, 0.11], "holds in part"),
        ([-0.10, 0.01], "does not hold"),
        ([0.10], "not measured yet"),  # one seed has no interval
        ([], "not measured yet"),
    ):
        record(claims, gains)
        assert verdict(claims) == said


def test_the_page_shows_figures_rules_and_verdicts(claims, tmp_path: Path) -> None:
    record(claims, [0.10, 0.11])
    page = claims.render()
    assert "There are 3 claims: holds 1, not measured yet 1, cannot be tested here 1." in page
    assert "> It helps. (Sec. 1)" in page
    assert "- `gain`: accuracy at high less that at low: 10.5 [4.1, 16.9], 2 seeds (`t; a; high - low; OOD`)" in page
    assert "Rule: holds if `gain.lower > 0`; holds in part if `gain.mean > 0 and gain.seeds > 1`." in page
    assert "The mean is 60.5." in page
    assert "- `cost`: cost: waits for `reproduce/records/later.json`" in page
    assert "**Verdict: cannot be tested here.** There are no wings." in page
    (tmp_path / "records" / "later.json").write_text(json.dumps({"here": {"cost": 1.5}}), encoding="utf-8")
    assert "holds 2" in claims.render()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("gian.lower > 0", "no figure 'gian'; figures are gain"),
        ("gain.lowest > 0", "a figure has mean, low, high, lower, upper, seeds, and no 'lowest'"),
        ("__import__('os').getcwd() > 0", "not allowed"),
        ("gain.mean > ", "is no rule"),
        ("gain.mean > 'a'", "'a' is no number"),
        ("gain > 1", "cannot be compared"),
    ],
)
def test_a_wrong_rule_is_named(claims, rule: str, said: str) -> None:
    with pytest.raises(claims.ValueNameError, match=said):
        claims.decide(rule, {"gain": claims.figure({0: 1.0, 1: 2.0})})


def test_a_figure_of_one_seed_says_so(claims) -> None:
    record(claims, [0.10])
    assert "accuracy at high less that at low: 10.0, 1 seed (`t; a; high - low; OOD`)" in claims.render()


def test_a_verdict_that_was_edited_fails_the_check(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = script("reproduce/check.py")
    home = tmp_path / "reproduce"
    home.mkdir()
    for name in ("t.yaml", "claims.yaml", "records"):
        (tmp_path / name).rename(home / name)
    (home / "claims.py").write_text((ROOT / "reproduce" / "claims.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "README.md").write_text("A title.\n", encoding="utf-8")
    monkeypatch.setattr(claims.records, "HERE", home)
    record(claims, [0.10, 0.11])
    page = claims.records.page_path("claims")
    page.parent.mkdir(parents=True)
    page.touch()
    assert check.main(write=True) == 0
    page.write_text(page.read_text(encoding="utf-8").replace("Verdict: holds.", "Verdict: does not hold."))
    (problem,) = check.all_problems()
    assert "the page says '**Verdict: does not hold.**', its source makes '**Verdict: holds.**'" in str(problem)


def test_every_claim_of_the_paper_is_quoted_and_can_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("reproduce/claims.py")
    loaded = module.load()
    assert len({claim["claim"] for claim in loaded}) == len(loaded) > 20
    for claim in loaded:
        assert claim["quote"]
        assert claim["section"]
        if module.NEVER not in claim:
            assert "holds" in claim
            one = {name: module.Figure(0.0, 0.0, 0.0, 0.0, 0.0, 3) for name in claim["figures"]}
            assert {module.decide(claim[rule], one) for rule in module.RULES if rule in claim} <= {True, False}
            rules = " ".join(claim.get(rule, "") for rule in module.RULES)
            unread = [name for name in claim["figures"] if not re.search(rf"\b{name}\.", rules)]
            assert not unread, f"{claim['claim']}: no rule reads {unread}"
    assert (ROOT / "docs" / "results" / "claims.md").exists()
