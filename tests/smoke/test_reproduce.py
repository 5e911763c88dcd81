"""The runner of tables: what it reads from run folders, and what the pages say of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean

import pytest

import sitar
from helpers.scripts import ROOT, script
from sitar.presets import load_config

TINY = [
    "data.train_size=400",
    "data.eval_size=300",
    "data.image_size=14",
    "model.channels=[4]",
    "train.epochs=6",
    "train.batch_size=64",
    "train.learning_rate=0.02",
    "train.evaluate=[val,id_test,ood_test]",
]


@pytest.fixture(scope="module")
def runner():
    return script("reproduce/run.py")


def described(runner, preset: str, selection: str, folder: Path, *overrides: str) -> dict:
    overrides = (*TINY, f"train.selection={selection}", *overrides)
    sitar.train(preset, overrides=overrides, seed=0, out=folder, device="cpu", progress=False)
    job = {"row": "r", "column": "c", "preset": preset, "overrides": list(overrides), "seed": 0}
    return runner.describe(job, folder)


def test_one_training_answers_for_every_selection(runner, tmp_path: Path) -> None:
    """What a run says of another criterion is what a run with that criterion gives."""
    runs = {
        name: described(runner, "color_mnist/erm", name, tmp_path / name)
        for name in ("last", "val_average", "val_class_balanced")
    }
    for told in runs.values():
        for name, made in runs.items():
            assert told["selections"][name]["epoch"] == made["selected_epoch"]
            for split in ("id_test", "ood_test"):
                assert told["selections"][name][split]["average"] == made["splits"][split]["average"]
    assert len({run["selected_epoch"] for run in runs.values()}) > 1  # else this test says nothing
    chosen = runs["last"]["selections"]
    assert runner.value_of(runs["last"], "ood_test@val_average") == 100 * chosen["val_average"]["ood_test"]["average"]
    assert (
        runner.value_of(runs["last"], "ood_test.worst_group") == 100 * runs["last"]["splits"]["ood_test"]["worst_group"]
    )


def test_a_fit_after_the_epochs_has_no_selections(runner, tmp_path: Path) -> None:
    run = described(runner, "color_mnist/afr", "last", tmp_path / "run")
    assert "selections" not in run
    assert runner.value_of(run, "ood_test@val_average") == runner.value_of(run, "ood_test")


def test_runs_are_explained_where_a_table_says_so(runner, tmp_path: Path) -> None:
    table = runner.load_table("gradcam")
    jobs = runner.jobs(table)
    assert {job["seed"] for job in jobs if job["explain"]} == {0, 1, 2}
    assert {job["preset"] for job in jobs} == {"celeba/erm", "celeba/control", "celeba/sitar"}

    job = {**jobs[0], "preset": "color_mnist/erm", "overrides": ["train.epochs=1"], "folder": "run"}
    runner.work(job, tmp_path, "cpu", [setting for setting in TINY if not setting.startswith("train.epochs")])
    file = tmp_path / "run" / "artifacts" / "explain.json"
    explained = json.loads(file.read_text(encoding="utf-8"))
    assert explained["gradcam"]["mass_in_box"] is None  # digits have no face
    explained["gradcam"] |= {"mass_in_box": 0.25, "n": 7}
    file.write_text(json.dumps(explained))
    run = runner.describe(job, tmp_path / "run")
    assert runner.value_of(run, table["splits"]["mass inside the face"]) == 25
    assert run["splits"]["gradcam"]["n"] == 7


@pytest.mark.parametrize("table", sorted(path.stem for path in (ROOT / "reproduce").glob("*.yaml")))
def test_every_run_of_a_table_has_valid_settings(table: str, runner) -> None:
    for job in runner.jobs(runner.load_table(table)):
        load_config(job["preset"], job["overrides"], job["seed"])


@pytest.mark.parametrize("table", sorted(path.stem for path in (ROOT / "reproduce").glob("*.yaml")))
def test_every_run_of_a_table_is_in_its_record(table: str, runner) -> None:
    """All seeds of all rows, with the settings that the table has now."""
    said = ("row", "column", "preset", "overrides", "seed")
    recorded = [{key: run[key] for key in said} for run in runner.load_record(table)["runs"]]
    wanted = [{key: job[key] for key in said} for job in runner.jobs(runner.load_table(table))]
    assert not [job for job in wanted if job not in recorded]
    assert not [run for run in recorded if run not in wanted]


def test_rows_are_made_again_alone(runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "HERE", tmp_path)
    (tmp_path / "t.yaml").write_text(
        "title: t\nsplits: {OOD: ood_test}\nepoch: last\nseeds: [0]\ncolumns: {c: []}\n"
        "rows: {a: {preset: color_mnist/erm}, b: {preset: color_mnist/erm, set: [train.epochs=1]}}\npaper: {}\n"
    )
    out = tmp_path / "runs"
    jobs = runner.jobs(runner.load_table("t"))
    for job in jobs:
        runner.work(job, out, "cpu", TINY)
    runner.collect("t", out, jobs)
    before = runner.load_record("t")["runs"]
    assert [run["row"] for run in before] == ["a", "b"]
    environment = out / jobs[1]["folder"] / "environment.json"
    environment.write_text(environment.read_text().replace('"commit": "', '"commit": "new'))
    runner.collect("t", out, jobs[1:])
    after = runner.load_record("t")["runs"]
    assert after[0] == before[0]
    assert after[1]["environment"]["commit"] != before[1]["environment"]["commit"]
    assert "commit new" in runner.render("t")


def test_numbers_on_the_page_of_encoders_come_from_the_records() -> None:
    page = (ROOT / "docs" / "encoders.md").read_text(encoding="utf-8").partition("## What we found")[2]
    records = ROOT / "reproduce" / "records"
    known = {"0.9", "0.1", "71.7", "60.5"}  # v and alpha, and the paper's
    rows: dict[str, list[float]] = {}
    for name in ("bar", "bar_frozen"):
        for run in json.loads((records / f"{name}.json").read_text(encoding="utf-8"))["runs"]:
            rows.setdefault(f"{name} {run['row']}", []).append(100 * run["splits"]["test"]["average"])
    attempts = json.loads((records / "pretrained_tuning.json").read_text(encoding="utf-8"))["attempts"]
    for run in attempts:
        rows.setdefault(run["run"], []).append(100 * run["test"])
    for values in rows.values():
        spread = (sum((v - mean(values)) ** 2 for v in values) / max(1, len(values) - 1)) ** 0.5
        known |= {f"{mean(values):.1f}", f"{spread:.1f}"}
    shown = re.findall(r"\b\d+\.\d\b", page)
    assert len(shown) > 10
    assert not [number for number in shown if number not in known]


def test_the_readme_says_of_real_images_what_the_records_say() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    runs = json.loads((ROOT / "reproduce/records/celeba.json").read_text(encoding="utf-8"))["runs"]

    def worst(row: str, column: str) -> float:
        found = [r for r in runs if r["row"].startswith(row) and r["column"] == column]
        assert len(found) == 3
        return mean(100 * r["splits"]["test"]["worst_group"] for r in found)

    tasks = ("Blond/Gender", "Attractive/Smiling")
    above = {
        row: [f"{worst(row, task) - worst('ERM', task):.0f}" for task in tasks]
        for row in ("sitar (axis noise, alpha 0.1", "control")
    }
    sitar_above, control_above = above.values()
    assert f"worst group is {' and '.join(sitar_above)} points above ERM's" in text
    assert f"without noise is {' and '.join(control_above)} above" in text
    bar = json.loads((ROOT / "reproduce/records/bar.json").read_text(encoding="utf-8"))["runs"]
    means = {
        row: mean(100 * r["splits"]["test"]["average"] for r in bar if r["row"].startswith(row))
        for row in ("sitar (axis", "control", "ERM")
    }
    assert [round(means[row] - means["ERM"]) for row in ("sitar (axis", "control")] == [2, 2]
    assert "both two points above ERM" in text


def test_the_page_of_the_theorem_says_what_its_record_says() -> None:
    page = " ".join((ROOT / "docs" / "theory.md").read_text(encoding="utf-8").split())
    theory = json.loads((ROOT / "reproduce/records/theory.json").read_text(encoding="utf-8"))["theory"]
    at_one = theory["alphas"].index(1.0)
    symmetric, skewed = theory["comparisons"]
    assert (f"{symmetric['order']:.1f}", f"{skewed['order']:.1f}") == ("4.0", "3.0")
    off, added = symmetric["remainder"][at_one], symmetric["exact"][at_one] - theory["clean"]
    assert f"off by {off:.3f}, of the {added:.3f} that the noise adds" in page
    share = theory["terms"]["jacobian_consistency"][at_one] / (theory["predicted"][at_one] - theory["clean"])
    assert 0.75 < share < 0.85
    assert "Four fifths of what it predicts" in page


@pytest.mark.parametrize("name", ["color_mnist", "sites"])
def test_the_page_of_the_audit_has_the_recorded_figures(name: str) -> None:
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "reproduce" / "records" / f"audit_{name}.json").read_text(encoding="utf-8"))
    for run in record["runs"]:
        figures = [
            f"{run[name]:.2f}" for name in ("accuracy", "next_accuracy", "correlation", "attribute_auc", "label_auc")
        ]
        assert " | ".join([f"| {run['rho']}", str(run["seed"]), str(run["axis"]), *figures]) in page


@pytest.mark.parametrize(("name", "attribute", "tied"), [("color_mnist", "color", 0.9), ("sites", "site", 0.98)])
def test_the_first_axis_of_an_audit_is_the_shortcut_where_there_is_one(name: str, attribute: str, tied: float) -> None:
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    runs = json.loads((ROOT / "reproduce" / "records" / f"audit_{name}.json").read_text(encoding="utf-8"))["runs"]
    found = [
        run["verdict"] == "one" and run["attribute_auc"] > 0.95 and run["attribute_auc"] > run["label_auc"]
        for run in runs
        if run["rho"] == tied
    ]
    assert len(found) == 5
    assert sum(found) >= 4
    assert [run["verdict"] for run in runs if run["rho"] == 0.5] == ["none"]
    assert f"| AUC {attribute} | AUC label |" in page
    words = {"one": "one cheap cue stands out", "none": "nothing stands out"}
    for run in runs:
        auc = f"{run['attribute_auc']:.2f} | {run['label_auc']:.2f}"
        assert any(
            line.startswith(f"| {run['rho']} | {run['seed']} | {run['axis']} |")
            and line.endswith(f"| {auc} | {words[run['verdict']]} |")
            for line in page.splitlines()
        )


def test_the_page_of_the_audit_says_what_came_out_on_celeba() -> None:
    page = " ".join((ROOT / "docs" / "audit.md").read_text(encoding="utf-8").split())
    runs = json.loads((ROOT / "reproduce/records/audit_celeba.json").read_text(encoding="utf-8"))["runs"]
    assert [run["split"] for run in runs] == ["majority only", "all groups"]
    for audit in (run["audit"] for run in runs):
        best, attribute = audit["axes"][0], audit["attribute"]
        low, high = best["intervals"]["accuracy"]
        assert audit["verdict"]["kind"] == "none"
        assert f"with {best['accuracy']:.2f} [{low:.2f}, {high:.2f}]" in page
        own, label = (attribute[name][best["axis"]] for name in ("attribute_auc", "label_auc"))
        assert f"`Male` apart with an AUC of {own:.2f} and `Blond_Hair` with {label:.2f}" in page
        assert f"`Male` best has an AUC of {max(attribute['attribute_auc']):.2f}" in page
    assert runs[1]["seconds"] < 600
    assert "5 min 40 s" in page


def test_the_page_of_speed_has_the_recorded_figures() -> None:
    page = (ROOT / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "reproduce/records/images_speed.json").read_text(encoding="utf-8"))
    for key, words in (("preparation, times faster", "preparation is"), ("reading, times faster", "reading")):
        values = [measured[key] for measured in record["measurements"]]
        assert f"{words} {min(values):.2f} to {max(values):.2f} times faster" in page
        assert min(values) >= {"preparation, times faster": 1.7, "reading, times faster": 10}[key]
    assert all(measured["largest difference of a pixel"] == 0 for measured in record["measurements"])
