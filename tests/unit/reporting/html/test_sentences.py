"""The summary, in sentences."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from helpers.made_runs import make_run
from sitar.reporting.against import ONE_SEED, judge
from sitar.reporting.comparison import compare_runs
from sitar.reporting.html.bars import metric_bars
from sitar.reporting.html.sentences import summary


def test_the_summary_says_what_leads_what_falls_and_what_the_control_has(runs: list[Path]) -> None:
    (comparison,), left_out = compare_runs(runs)
    words = summary(comparison)
    bars = {bar.label: bar for bar in metric_bars(comparison, "ood_test", "worst_group")}
    rows = {row.label: row for row in comparison.rows}
    (over_control,) = judge([(rows["sitar"], rows["control"])], "ood_test", "worst_group")
    over_erm = judge([(rows[name], rows["erm"]) for name in ("control", "sitar")], "ood_test", "worst_group")
    assert not left_out
    assert words[0] == "3 runs on made, 2 classes."
    assert words[1].startswith(
        f"On ood_test sitar has the highest worst group accuracy, {100 * bars['sitar'].value:.1f} %"
    )  # type: ignore[operator]
    against = "Against the VAE without noise, the control, in worst group on ood_test:"
    assert over_control.sentence.startswith("sitar is better than control by ")
    assert f"{against} {over_control.sentence}." in words
    assert f"{over_control.sentence}." in words, "the first two"
    control, sitar = (verdict.words for verdict in over_erm)
    assert f"Against erm, in worst group on ood_test: control {control}; sitar is {sitar}." in words
    assert words[-1] == ONE_SEED
    assert any("in distribution to" in sentence for sentence in words)


def test_a_row_that_is_not_above_chance_is_named(runs: list[Path], tmp_path: Path) -> None:
    low = make_run(tmp_path / "jtt", "jtt", accuracy=0.2, explained=False).path
    (comparison,), _ = compare_runs([runs[2], low])
    assert "A classifier that knows nothing has 50.0 % in every group; jtt has no more on ood_test." in summary(
        comparison
    )
    (comparison,), _ = compare_runs([runs[2]])
    assert "A classifier that knows nothing has 50.0 % in every group." in summary(comparison)


def test_groups_without_a_sample_are_named(runs: list[Path], tmp_path: Path) -> None:
    (comparison,), _ = compare_runs(runs)
    assert not any("do not tell whether" in sentence for sentence in summary(comparison))
    result = json.loads((runs[0] / "result.json").read_text())
    for found in list(result["splits"]["ood_test"]["groups"].values())[1:3]:
        found |= {"n": 0, "accuracy": None}
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    (comparison,), _ = compare_runs([tmp_path / "run"])
    said = summary(comparison)[1]
    assert "do not tell whether" in said, "before any row is said to be the best"
    assert said.startswith("No sample of ood_test is of ")
    assert " or " in said


def test_what_answers_let_expect_is_said(runs: list[Path], tmp_path: Path) -> None:
    result = json.loads((runs[0] / "result.json").read_text())
    before = [{"run": "runs/erm", "accuracy": 0.74, "interval": [0.6, 0.84]}]
    expected = {"accuracy": 0.88, "interval": [0.76, 0.94]}
    refit = {"run": "runs/erm", "features": "latent", "penalty": 1.0, "weighted": False}
    result |= {"answers": 50, "refit": {**refit, "expected": expected, "before": before}}
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    (comparison,), _ = compare_runs([tmp_path / "run"])
    said = next(sentence for sentence in summary(comparison) if "is expected to have" in sentence)
    assert "88.0 % (76.0 to 94.0); as they were: runs/erm 74.0 % (60.0 to 84.0)." in said


def test_without_a_control_nothing_is_credited_to_the_noise(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs([runs[0], runs[2]])
    assert any(sentence.startswith("No control (alpha 0) is among these runs") for sentence in summary(comparison))


def test_rows_that_cannot_be_told_apart_are_said_not_to_be(tmp_path: Path) -> None:
    same = [make_run(tmp_path / name, name, accuracy=0.8, explained=False).path for name in ("jtt", "lff")]
    (comparison,), _ = compare_runs(same)
    assert any(" and " in sentence and "cannot be told apart (" in sentence for sentence in summary(comparison))


def test_a_range_says_whether_it_is_of_seeds_or_an_interval(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), "erm", seed=seed, explained=False) for seed in (0, 1)]
    values = [100 * run.result()["splits"]["ood_test"]["worst_group"] for run in runs]
    (comparison,), _ = compare_runs([run.path for run in runs])
    assert summary(comparison)[1].endswith(f" % (seeds from {min(values):.1f} to {max(values):.1f}).")
    (comparison,), _ = compare_runs([runs[0].path])
    assert summary(comparison)[1].endswith(f" % (95 % interval {values[0] - 5:.1f} to {values[0] + 5:.1f}).")


def test_two_seeds_say_nothing_about_one_seed(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{m}{s}", m, seed=s, explained=False).path for m in ("erm", "jtt") for s in (0, 1)]
    (comparison,), _ = compare_runs(runs)
    assert any(sentence.startswith("Against erm") for sentence in summary(comparison))
    assert ONE_SEED not in summary(comparison)


def test_runs_without_predictions_are_not_compared_and_the_reason_is_given(runs: list[Path], tmp_path: Path) -> None:
    copies = [tmp_path / run.name for run in runs[1:]]
    for run, copy in zip(runs[1:], copies, strict=True):
        shutil.copytree(run, copy)
    (copies[0] / "predictions.npz").write_bytes(b"damaged")
    (comparison,), _ = compare_runs(copies)
    words = summary(comparison)
    assert sum(sentence.startswith("Not compared sample by sample: ") for sentence in words) == 1
    bars = {bar.label: bar.value for bar in metric_bars(comparison, "ood_test", "worst_group")}
    gain = 100 * (bars["sitar"] - bars["control"])  # type: ignore[operator]
    assert any(f"sitar {gain:+.1f} points over control" in sentence for sentence in words)


def test_a_method_with_group_labels_is_an_upper_bound_and_does_not_lead(runs: list[Path], tmp_path: Path) -> None:
    (comparison,), _ = compare_runs([*runs, make_run(tmp_path / "dfr", "dfr", accuracy=0.99, explained=False).path])
    words = summary(comparison)
    assert words[1].startswith("On ood_test sitar has the highest")
    assert words[2].startswith("sitar is better than control by ")
    assert words[3].startswith("Given group labels of the training samples, an upper bound and not a rival")


def test_a_control_with_other_settings_is_said_to_be_one(runs: list[Path], tmp_path: Path) -> None:
    control = tmp_path / "control"
    shutil.copytree(runs[1], control)
    config = yaml.safe_load((control / "config.yaml").read_text())
    config["method"] |= {"beta": 4.0, "lambda": 10.0}
    (control / "config.yaml").write_text(yaml.safe_dump(config))
    (comparison,), _ = compare_runs([control, runs[2]])
    assert any(") (which also differs in method.beta" in sentence for sentence in summary(comparison))


def test_a_row_without_the_split_is_named(runs: list[Path], tmp_path: Path) -> None:
    run = make_run(tmp_path / "jtt", "jtt", explained=False)
    (comparison,), _ = compare_runs([*runs, run.path])
    for result in comparison.rows[-1].results:
        del result["splits"]["ood_test"]
    assert "No worst group accuracy on ood_test: jtt." in summary(comparison)


def test_one_run_is_a_sentence(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs([runs[0]])
    assert summary(comparison)[1].startswith("On ood_test erm has a worst group accuracy of ")
