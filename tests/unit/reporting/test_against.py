"""Rows are compared with a reference by what their runs have stored, and refused where they cannot be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.made_runs import make_run
from sitar.errors import ConfigError, RunError
from sitar.evaluation.metrics import METRICS, Predictions, core_auc, shortcut_auc, split_metrics
from sitar.reporting import paired
from sitar.reporting.against import Verdict, against, difference, find_row, goodness, judge, points
from sitar.reporting.comparison import Row, group_runs, read_runs
from sitar.reporting.paired import Difference

NAMES = [f"label={y},place={a}" for y in (0, 1) for a in (0, 1)]
SHARE = (0.45, 0.05, 0.05, 0.45)


def made_row(place: Path, method: str, skill: float = 1.0, seeds: int = 2, **changed: Any) -> Row:
    """A row of runs with random logits, whose metrics are those of the logits."""
    runs = []
    for seed in range(seeds):
        run = make_run(place / f"{method}{seed}", method, seed=seed, explained=False)
        stored, result = dict(np.load(run.predictions_file)), run.result()
        random = np.random.default_rng(1000 * len(method) + seed)
        for split in ("id_test", "ood_test"):
            y, group = stored[f"{split}/y"], stored[f"{split}/group"]
            logits = random.normal(0, 1, (len(y), 2)).astype(np.float32)
            logits[np.arange(len(y)), y] += np.float32(skill)
            stored |= {f"{split}/logits": logits, f"{split}/group_share": np.array(SHARE)}
            found = split_metrics(Predictions(logits, y, group, NAMES, SHARE), resamples=0)
            result["splits"][split] = {**result["splits"][split], **found}  # type: ignore[typeddict-item]
        np.savez(run.predictions_file, **{**stored, **changed})
        run.result_file.write_text(json.dumps(result))
        runs.append(run.path)
    (row,) = group_runs(read_runs(runs))
    return row


@pytest.mark.parametrize("metric", list(METRICS))
def test_the_difference_is_that_of_the_stored_metrics(
    metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every metric, whichever way it is resampled, and with more being better whatever the metric."""
    monkeypatch.setattr(paired, "SLOW_RESAMPLES", 20)
    mine, theirs = made_row(tmp_path, "jtt", 1.5), made_row(tmp_path, "lfff", 0.5)
    found = difference(mine, theirs, "ood_test", metric)
    assert found is not None
    values = [
        [goodness(METRICS[metric], value) for value in row.summary("ood_test", metric)["values"]]
        for row in (mine, theirs)
    ]
    np.testing.assert_allclose(found.each, np.subtract(*values), atol=1e-9)
    low, high = found.interval()
    assert low < found.value < high
    back = difference(theirs, mine, "ood_test", metric)
    assert back is not None
    assert back.value == -found.value
    assert back.interval() == (-high, -low)


def test_a_shortcut_auc_is_better_where_it_is_closer_to_a_half() -> None:
    metric = METRICS["shortcut_auc"]
    assert goodness(metric, 0.45) > goodness(metric, 0.6) > goodness(metric, 0.35)
    assert goodness(METRICS["calibration_error"], 0.1) > goodness(METRICS["calibration_error"], 0.2)


def test_errors_of_aucs_are_those_of_their_difference(tmp_path: Path) -> None:
    """An AUC below its ideal moves the other way: that of 1 - AUC has the same error."""
    mine, theirs = made_row(tmp_path, "jtt", seeds=1), made_row(tmp_path, "lfff", seeds=1)
    for name, auc in (("core_auc", core_auc), ("shortcut_auc", shortcut_auc)):
        found = difference(mine, theirs, "ood_test", name)
        stored = [row.runs[0].predictions("ood_test") for row in (mine, theirs)]
        one, other = (auc(Predictions(s["logits"], s["y"], s["group"], NAMES, SHARE)) for s in stored)
        assert found is not None
        assert one is not None
        assert other is not None
        signs = [-1 if name == "shortcut_auc" and a.value > 0.5 else 1 for a in (one, other)]
        variance = ((signs[0] * one.influence - signs[1] * other.influence) ** 2).sum()
        assert found.covariance[0, 0] == pytest.approx(variance)


def test_rows_whose_aucs_no_sample_moves_are_not_certain(tmp_path: Path) -> None:
    """One row ranks every sample right and the other every sample wrong, which says the more the more samples it is."""
    rows, sizes = [], np.bincount(made_row(tmp_path / "0", "jtt").runs[0].predictions("ood_test")["group"])
    for method, skill in (("jtt", 100.0), ("lfff", -100.0)):
        rows.append(made_row(tmp_path, method, skill, seeds=1))
    (verdict,) = judge([(rows[0], rows[1])], "ood_test", "core_auc")
    assert verdict.difference.value == 1.0
    error = np.sqrt(2 * (1 / (2 * (sizes + 2)) ** 2).sum())
    np.testing.assert_allclose(verdict.difference.interval(), (1 - 1.96 * error, 1 + 1.96 * error), atol=1e-5)
    assert verdict.words == f"better by 100.0 points ({points(1 - 1.96 * error)} to 100.0)"


def test_words_say_which_way_and_agree_with_the_interval(tmp_path: Path) -> None:
    good, bad, twin = (made_row(tmp_path, name, skill) for name, skill in (("jtt", 3.0), ("lfff", 0.0), ("vrexx", 0.0)))
    better, worse, same = (judge([pair], "ood_test", "average")[0] for pair in ((good, bad), (bad, good), (twin, bad)))
    low, high = better.interval
    assert better.words == f"better by {points(better.difference.value)} points ({points(low)} to {points(high)})"
    assert worse.words == f"worse by {points(better.difference.value)} points ({points(low)} to {points(high)})"
    assert same.words == f"cannot be told apart ({points(same.interval[0])} to {points(same.interval[1])})"
    assert better.sentence == f"made/jtt is better than made/lfff by {better.words.partition(' by ')[2]}"
    assert same.sentence == f"made/vrexx and made/lfff {same.words}"
    assert points(-0.0001) == "0.0"


def test_more_rows_make_wider_intervals_and_their_order_does_not_matter(tmp_path: Path) -> None:
    names = ("jtt", "lfff", "vrexx", "irmirm")
    rows = [made_row(tmp_path, name, 1 + 0.3 * place) for place, name in enumerate(names)]
    alone = judge([(rows[1], rows[0])], "ood_test", "average")[0]
    shown = [("ood_test", "average"), ("id_test", "worst_group")]
    together, turned = against(rows, rows[0], shown), against(rows[::-1], rows[0], shown)
    found = {(verdict.split, verdict.row.label): verdict for verdict in turned}
    assert len(together) == len(turned) == 6
    for verdict in together:
        other = found[verdict.split, verdict.row.label]
        assert (verdict.interval, verdict.p) == (other.interval, other.p)
        assert verdict.told_apart == (verdict.p < 0.05)
    assert alone.level == pytest.approx(0.95)
    assert np.diff(together[0].interval) > np.diff(alone.interval)
    assert together[0].p >= alone.p


def test_an_interval_ends_where_a_difference_does(tmp_path: Path) -> None:
    """With two seeds t is 12.7, and seeds that differ much have an interval beyond what is possible."""
    mine, theirs = made_row(tmp_path, "jtt"), made_row(tmp_path, "lfff")
    wide = Difference(np.array([0.1, 0.5]), np.array([0.1, 0.5]), np.eye(2))
    assert Verdict(mine, theirs, "ood_test", "average", [0, 1], wide, 0.95, 1.0).interval == (-1.0, 1.0)
    assert Verdict(mine, theirs, "ood_test", "shortcut_auc", [0, 1], wide, 0.95, 1.0).interval == (-0.5, 0.5)


def test_seeds_that_both_have_are_compared(tmp_path: Path) -> None:
    three, two = made_row(tmp_path, "jtt", seeds=3), made_row(tmp_path, "lfff", seeds=2)
    (verdict,) = judge([(three, two)], "ood_test", "average")
    assert verdict.seeds == [0, 1]
    assert len(verdict.difference.each) == 2
    with pytest.raises(RunError, match=r"made/jtt \(seeds 2\) and made/lfff \(seeds 0, 1\) share no seed"):
        judge([(Row(three.label, three.runs[2:]), two)], "ood_test", "average")


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    mine, theirs = made_row(tmp_path, "jtt"), made_row(tmp_path, "lfff")
    theirs.results[1]["splits"]["ood_test"]["worst_group"] = None
    assert judge([(mine, theirs)], "ood_test", "worst_group") == []
    assert judge([(mine, theirs)], "test", "average") == []
    assert len(judge([(mine, theirs)], "ood_test", "average")) == 1


def test_an_older_run_has_no_shares_of_groups(tmp_path: Path) -> None:
    """Its shortcut AUC is in result.json, but cannot be computed anew for other samples."""
    mine, theirs = made_row(tmp_path, "jtt"), made_row(tmp_path, "lfff")
    for run in (*mine.runs, *theirs.runs):
        kept = {key: value for key, value in run._predictions.items() if "group_share" not in key}
        run.__dict__["_predictions"] = kept
    assert judge([(mine, theirs)], "ood_test", "shortcut_auc") == []
    assert judge([(mine, theirs)], "ood_test", "adjusted_average") == []
    assert len(judge([(mine, theirs)], "ood_test", "core_auc")) == 1


NINE = np.arange(9)
OTHERS: dict[str, tuple[Mapping[str, Any], str]] = {
    "labels": ({"ood_test/y": (np.arange(240) + 1) % 2}, "the labels of ood_test differ"),
    "fewer": (
        {"ood_test/y": NINE % 2, "ood_test/logits": np.eye(2)[NINE % 2], "ood_test/group": NINE % 4},
        "the labels of ood_test differ",
    ),
    "groups": ({"ood_test/group": np.zeros(240, int)}, "the groups of ood_test differ"),
    "damaged": ({"ood_test/logits": np.zeros(240)}, "missing or damaged"),
    "group that is none": ({"ood_test/group": np.full(240, 7)}, "missing or damaged"),
    "shares that are words": ({"ood_test/group_share": np.array(list("abcd"))}, "missing or damaged"),
    "pairs that are none": ({"ood_test/majority": np.arange(3)}, "missing or damaged"),
    "words": ({"ood_test/y": np.array(["a"] * 240)}, "missing or damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), OTHERS.values(), ids=OTHERS)
def test_other_samples_are_refused(changed: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    mine, theirs = made_row(tmp_path, "jtt"), made_row(tmp_path, "lfff", **changed)
    with pytest.raises(RunError, match=message):
        judge([(mine, theirs)], "ood_test", "average")


def test_a_refused_pair_leaves_the_others(tmp_path: Path) -> None:
    good, bad = made_row(tmp_path, "jtt"), made_row(tmp_path, "vrexx", **{"ood_test/logits": np.zeros(240)})
    reference, told = made_row(tmp_path, "lfff"), []
    (verdict,) = judge([(good, reference), (bad, reference)], "ood_test", "average", told.append)
    assert verdict.row is good
    assert verdict.level == pytest.approx(0.95), "a family of one"
    assert len(told) == 1


def test_logits_that_are_not_finite_have_no_auroc_to_compare(tmp_path: Path) -> None:
    broken = np.full((240, 2), np.nan, np.float32)
    mine, theirs = made_row(tmp_path, "jtt"), made_row(tmp_path, "lfff", **{"ood_test/logits": broken})
    assert judge([(mine, theirs)], "ood_test", "auroc") == []


def test_other_data_is_refused(tmp_path: Path) -> None:
    mine, theirs = made_row(tmp_path, "jtt"), made_row(tmp_path, "lfff")
    theirs.runs[0].__dict__["environment"] = {"data_checksum": "other"}
    with pytest.raises(RunError, match="the checksums of the data of ood_test differ"):
        judge([(mine, theirs)], "ood_test", "average")


def test_a_row_is_found_by_label_preset_or_method(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, name, explained=False).path for name in ("erm", "jtt")]
    control = make_run(tmp_path / "control", "sitar", alpha=0.0, explained=False).path
    sitar = make_run(tmp_path / "sitar", "sitar", explained=False).path
    rows = group_runs(read_runs([*paths, control, sitar]))
    assert find_row(rows, "ERM") is find_row(rows, "made/erm") is rows[0]
    assert find_row(rows, "Control") is rows[2]
    assert find_row(rows, "sitar") is rows[3], "its preset, and not the method of both"
    with pytest.raises(ConfigError, match=r"Unknown row 'made/errm'. Did you mean 'made/erm'\?"):
        find_row(rows, "made/errm")
    two = group_runs(read_runs([sitar, make_run(tmp_path / "other", "sitar", alpha=0.5, explained=False).path]))
    with pytest.raises(
        RunError, match=r"is the name of 2 rows: made/sitar method.alpha=1.0.*; made/sitar method.alpha"
    ):
        find_row(two, "sitar")


def test_a_method_in_the_preset_of_another_leaves_the_name_to_its_owner(tmp_path: Path) -> None:
    erm, mine = (make_run(tmp_path / name, "erm", explained=False) for name in ("erm", "mine"))
    config, result = mine.read_config(), mine.result()
    config["method"] = {**config["method"], "name": "mine", "strength": 1.0}
    mine.write_config(config)
    mine.result_file.write_text(json.dumps({**result, "method": "mine"}))
    rows = group_runs(read_runs([erm.path, mine.path]))
    assert find_row(rows, "ERM") is find_row(rows, "made/erm") is rows[0]
    assert find_row(rows, "mine") is rows[1]
    assert [row.label for row in rows] == ["made/erm method.name=erm", "made/erm method.name=mine method.strength=1.0"]


def test_a_seed_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """A copy of a run without its environment has no checksum, so that nothing else tells that it is a copy."""
    mine, theirs = made_row(tmp_path, "jtt"), made_row(tmp_path, "lfff")
    twice = Row(mine.label, [mine.runs[0], *mine.runs])
    for pair in ((twice, theirs), (theirs, twice), (twice, twice)):
        with pytest.raises(RunError, match=r"has a seed twice \(0, 0, 1\)"):
            judge([pair], "ood_test", "average")
