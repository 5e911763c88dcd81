"""What single sections make of a comparison."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.made_runs import make_run
from helpers.pages import pixels
from sitar.presets import load_config
from sitar.reporting.comparison import compare_runs
from sitar.reporting.groups import named_group
from sitar.reporting.html.bars import wilson
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sections.accuracy import make, split_bars
from sitar.reporting.html.sections.confusion import run_confusion
from sitar.reporting.html.sections.gradcam import run_maps
from sitar.reporting.html.sections.scores import score_curves
from sitar.reporting.html.sections.settings import _train, different_settings
from sitar.reporting.html.sections.training import accuracy_curves, loss_curves
from sitar.run_folder import RunFolder

KINDS = ("average", "worst group")


def test_the_worst_group_has_its_own_size_and_an_interval_with_a_width(tmp_path: Path) -> None:
    several = []
    for name, right in (("erm", 0.0), ("sitar", 0.05)):
        run = make_run(tmp_path / name, name, explained=False)
        result = json.loads(run.result_file.read_text())
        split = result["splits"]["ood_test"]
        split["groups"]["label=0,place=1"] = {"n": 20, "accuracy": right}
        split |= {"worst_group": right, "average": 1.0, "intervals": {"average": [1, 1], "worst_group": [0.0, right]}}
        run.result_file.write_text(json.dumps(result))
        several.append(run.path)
    (comparison,), _ = compare_runs(several)
    average, worst = (next(b for b in split_bars(comparison) if b.title == f"ood_test, {n}") for n in KINDS)
    assert (average.detail, worst.detail) == ("240 samples", "20 samples")
    assert (worst.bars[0].low, worst.bars[0].high) == wilson(0.0, 20)
    assert (worst.bars[1].low, worst.bars[1].high) == (0.0, 0.05), "the bootstrap's has a width"
    assert average.bars[0].low == wilson(1.0, 240)[0]


def test_bars_show_what_predictions_know_and_the_line_of_chance(tmp_path: Path) -> None:
    run = make_run(tmp_path / "erm", "erm", explained=False)
    (comparison,), _ = compare_runs([run.path])
    titles = {"ood_test, average", "ood_test, worst group", "id_test, average", "id_test, worst group"}
    assert {bars.title: bars.chance for bars in split_bars(comparison)} == dict.fromkeys(titles, 0.5)
    assert make(comparison, 1)["knowledge"] is False
    result = json.loads(run.result_file.read_text())
    result["splits"]["ood_test"] |= {"core_auc": 0.9, "shortcut_auc": 0.4}
    result["splits"]["ood_test"]["intervals"]["core_auc"] = [0.8, 0.95]
    result["splits"]["id_test"]["groups"] = {}
    run.result_file.write_text(json.dumps(result))
    (comparison,), _ = compare_runs([run.path])
    bars = {bars.title: bars for bars in split_bars(comparison)}
    core, shortcut = bars["ood_test, core AUC"], bars["ood_test, shortcut AUC"]
    assert (core.detail, core.chance, shortcut.chance) == ("", 0.5, 0.5)
    assert (core.bars[0].value, core.bars[0].low, core.bars[0].high) == (0.9, 0.8, 0.95)
    assert bars["id_test, average"].chance is None, "there are no groups"
    page = (write_report([run.path], tmp_path / "report.html")).read_text()
    assert 'class="chance" style="left:50.0%"' in page
    assert "Core AUC says how well" in page


def test_runs_may_be_worst_on_different_groups(tmp_path: Path) -> None:
    several = [make_run(tmp_path / str(share), "erm" if share else "jtt", accuracy=share).path for share in (0.0, 0.9)]
    (comparison,), _ = compare_runs(several)
    sizes = set()
    for run in comparison.runs:
        cells = run.result["splits"]["ood_test"]["groups"].values()
        least = min(cell["accuracy"] for cell in cells)
        sizes.add(max(cell["n"] for cell in cells if cell["accuracy"] == least))
    assert split_bars(comparison)[-1].detail == f"{min(sizes)} to {max(sizes)} samples"


@pytest.mark.parametrize(
    ("group", "attributes", "name"),
    [
        ("label=1,place=0", {"place": ["land", "water"]}, "green, place land"),
        ("label=0,Male=0", {"Male": ["not Male", "Male"]}, "red, not Male"),
        ("label=0,a=b=1", {"a=b": ["x", "y"]}, "red, a=b y"),
        ("label=0,place=1", {}, "red, place 1"),
        ("label=0,place=7", {"place": ["land"]}, "red, place 7"),
        ("label=5", {}, "label=5"),
    ],
)
def test_groups_have_the_names_of_class_and_value(group: str, attributes: dict[str, list[str]], name: str) -> None:
    assert named_group(group, ["red", "green"], attributes) == name


def test_settings_that_differ_stand_side_by_side(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs(runs)
    settings = different_settings(comparison)
    assert [row.label for row in comparison.rows] == ["erm", "control", "sitar"]
    assert ("method.alpha", ["–", "0.0", "1.0"]) in settings
    assert not any(key in ("seed", "preset", "data.name") for key, _ in settings)


def test_the_confusion_counts_what_was_said(runs: list[Path]) -> None:
    (comparison,), _ = compare_runs(runs)
    run = comparison.runs[0]
    matrix = run_confusion(run, "ood_test")["matrix"]
    y, predicted = run.labels("ood_test"), run.logits("ood_test").argmax(1)
    assert matrix[0][1][0] == int(((y == 0) & (predicted == 1)).sum())
    assert matrix[1][1][1] == pytest.approx(float((predicted[y == 1] == 1).mean()), abs=1e-4)


def test_curves_are_of_the_last_phase(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "jtt", explained=False)
    lines = run.metrics()
    for line in lines[:2]:
        line["phase"] = "first"
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (comparison,), _ = compare_runs([run.path])
    (chart,) = accuracy_curves(comparison)
    assert len(chart.curves[0].points.split()) == 3


def test_curves_of_several_candidates_are_those_of_the_chosen_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "sitar", explained=False, epochs=6)
    lines = run.metrics()
    for line, phase in zip(lines, ("erm", "erm", "sitar", "sitar", "bank", "bank"), strict=True):
        line["phase"] = phase
    for line in lines[:2]:
        del line["shortcut_score"]
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for chosen, own in (("erm", lines[:2]), ("sitar", lines[2:4]), ("bank", lines[4:])):
        run.result_file.write_text(json.dumps({**run.result(), "auto": {"chosen": chosen}}))
        (together,), _ = compare_runs([run.path])
        alone = make_run(tmp_path / chosen, "sitar", explained=False)
        alone.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in own))
        (single,), _ = compare_runs([alone.path])
        assert accuracy_curves(together) == accuracy_curves(single), "from its own start"
        assert loss_curves(together.runs[0]) == loss_curves(single.runs[0])
        assert score_curves(together.runs[0]) == score_curves(single.runs[0])
        page = write_report([run.path], tmp_path / "report.html").read_text()
        assert f"The curves of sitar are those of {chosen}, the candidate that was chosen." in page


def test_large_pictures_of_grad_cam_are_made_smaller(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=224)
    (comparison,), _ = compare_runs([run.path])
    maps = run_maps(comparison.runs[0])
    assert maps is not None
    assert max(pixels(maps["pictures"][0]["uri"]).shape[:2]) <= 256, "two tiles of at most 128 pixels"
    assert maps["area"] == pytest.approx(0.36)


def test_the_command_that_makes_a_run_again_names_its_data() -> None:
    config = load_config("folder/erm", ["data.root=scans", "train.batch_size=64"], 0).to_dict()
    run: Any = SimpleNamespace(config=config, seed=0, folder=RunFolder(Path("runs")))
    assert _train(run) == "sitar train folder/erm --seed 0 --set data.root=scans --set train.batch_size=64"
