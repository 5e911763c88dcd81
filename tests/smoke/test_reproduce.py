"""The runner of tables: what it reads from run folders, and what the pages say of the records."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import sitar
from helpers import made_data
from helpers.engines import InProcess
from helpers.scripts import ROOT, script
from sitar.data.benchmarks.waterbirds import PUBLISHED_MAJORITY
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


def test_a_record_keeps_what_other_heads_have(runner, tmp_path: Path) -> None:
    """A column may show the head that answers choose, or the best one. Rows of one head have the same value in all."""
    more = ("method.name=divdis", "data.unlabelled=val_ood")
    run = described(runner, "color_mnist/erm", "last", tmp_path / "heads", *more)
    heads = json.loads((tmp_path / "heads" / "result.json").read_text(encoding="utf-8"))["heads"]
    averages = [head["average"] for head in heads["splits"]["ood_test"]]
    assert averages[0] != averages[1], "else this test says nothing"
    assert run["unlabelled"] == 300
    assert runner.value_of(run, "ood_test@best_head") == pytest.approx(100 * max(averages), abs=0.01)
    assert runner.value_of(run, "ood_test@answers") == pytest.approx(100 * averages[heads["chosen"]], abs=0.01)
    assert run["selections"]["answers"]["head"] == heads["chosen"]
    assert run["selections"]["last"]["ood_test"]["average"] == run["splits"]["ood_test"]["average"]
    plain = described(runner, "color_mnist/erm", "last", tmp_path / "plain")
    assert "unlabelled" not in plain
    assert runner.value_of(plain, "ood_test@answers") == runner.value_of(plain, "ood_test")


def test_a_record_keeps_what_the_candidates_of_auto_have(runner, tmp_path: Path) -> None:
    """A column may show a candidate, and the chosen one has what the run has."""
    run = described(runner, "color_mnist/sitar_best", "val_average", tmp_path / "auto", "method.name=sitar_auto")
    chosen = run["auto"]["chosen"]
    for split in ("id_test", "ood_test"):
        assert runner.value_of(run, f"{split}@{chosen}") == runner.value_of(run, split)
    lines = [json.loads(line) for line in (tmp_path / "auto" / "metrics.jsonl").read_text("utf-8").splitlines()]
    for name in ("erm", "control", "sitar", "bank"):
        epochs = [line for line in lines if line["phase"] == name]
        best = epochs[-1] if name in ("sitar", "bank") else max(epochs, key=lambda line: line["val"]["average"])
        assert run["selections"][name]["epoch"] == best["epoch"]
        assert run["selections"][name]["ood_test"]["average"] == round(best["ood_test"]["average"], 4)


def test_a_record_keeps_what_the_gate_read(runner, tmp_path: Path) -> None:
    run = described(runner, "color_mnist/sitar_best", "last", tmp_path / "gated", "method.gate=true", "train.epochs=2")
    gate = json.loads((tmp_path / "gated" / "result.json").read_text(encoding="utf-8"))["gate"]
    assert gate["whole"] > 0, "else this test says nothing"
    assert [*run["gate"]] == ["tau", "open", "epochs_open", "epochs", "whole", "suspects", "rest"]
    assert run["gate"]["epochs"] == 2
    assert run["gate"]["rest"] == round(gate["rest"], 4)
    assert "gate" not in described(runner, "color_mnist/sitar_best", "last", tmp_path / "plain", "train.epochs=2")


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
    (tmp_path / "run" / "done").write_bytes(b"")  # whose checksum is that of the file before
    run = runner.describe(job, tmp_path / "run")
    assert runner.value_of(run, table["splits"]["mass inside the face"]) == 25
    assert run["splits"]["gradcam"]["n"] == 7


@pytest.mark.parametrize(
    "table", sorted(path.stem for path in (ROOT / "reproduce").glob("*.yaml") if path.stem != "claims")
)
def test_every_run_of_a_table_has_valid_settings(table: str, runner) -> None:
    for job in runner.jobs(runner.load_table(table)):
        load_config(job["preset"], job["overrides"], job["seed"])


@pytest.mark.parametrize(
    "table", sorted(path.stem for path in (ROOT / "reproduce").glob("*.yaml") if path.stem != "claims")
)
def test_every_recorded_run_is_one_that_its_table_asks_for(table: str, runner) -> None:
    """With the preset and the overrides that the table has now. What is missing says so on the page."""
    wanted = runner.jobs(runner.load_table(table))
    assert not [run for run in runner.records.record_so_far(table)["runs"] if not runner.is_said(run, wanted)]


TABLE = """\
title: A made-up table
splits: {ID: id_test, OOD: ood_test}
epoch: The last epoch is shown.
seeds: [0, 1]
columns: {low: [data.rho=0.5], high: [data.rho=0.9]}
rows:
  a: {preset: color_mnist/erm}
  b: {preset: color_mnist/erm, set: [train.epochs=1]}
paper: {X: [[70, 71.5], [–, 72 ± 0.5]]}
"""
SPLITS = ("ID", "OOD")
SHORT = [setting for setting in TINY if not setting.startswith("train.epochs")]


@pytest.fixture
def own(runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a test's own, with one table, `t`."""
    home = tmp_path / "reproduce"
    (home / "records").mkdir(parents=True)
    monkeypatch.setattr(runner.records, "HERE", home)
    (home / "t.yaml").write_text(TABLE, encoding="utf-8")
    return home


def made(row: str, column: str, seed: int, average: float, **more: object) -> dict:
    """A run as a record holds it."""
    part = {"preset": "color_mnist/erm", "overrides": ["data.rho=0.5" if column == "low" else "data.rho=0.9"]}
    if row == "b":
        part["overrides"] = ["train.epochs=1", *part["overrides"]]
    splits = {name: {"n": 9, "average": average, "worst_group": average} for name in ("id_test", "ood_test")}
    environment = {"commit": "c0ffee", "device": "cpu", "versions": {"torch": "2"}}
    return {"row": row, "column": column, **part, "seed": seed, "splits": splits, "environment": environment, **more}


def test_runs_made_now_replace_their_own_and_no_others(runner, own: Path) -> None:
    out = own / "runs"
    table = own / "t.yaml"
    table.write_text(table.read_text(encoding="utf-8").replace("erm}", "erm, set: [train.epochs=1]}"), encoding="utf-8")
    jobs = [job for job in runner.jobs(runner.load_table("t")) if job["row"] == "a" and job["seed"] == 0]
    for job in jobs:
        runner.work(job, out, "cpu", SHORT)
        runner.collect("t", out, [job])
    before = runner.load_record("t")["runs"]
    assert [(run["row"], run["column"], run["seed"]) for run in before] == [("a", "low", 0), ("a", "high", 0)]
    environment = out / jobs[1]["folder"] / "environment.json"
    environment.write_text(environment.read_text().replace('"commit": "', '"commit": "new'))
    environment.with_name("done").write_bytes(b"")  # whose checksum is that of the file before
    runner.collect("t", out, jobs[1:])
    after = runner.load_record("t")["runs"]
    assert after[0] == before[0]
    assert after[1]["environment"]["commit"] != before[1]["environment"]["commit"]
    assert "commit new" in runner.render("t")

    settings = runner.load_record("t")["settings"][after[0]["settings"]]
    assert settings["data.train_size"] == 400
    assert not {"seed", "preset", "data.root"} & settings.keys()
    table.write_text(TABLE, encoding="utf-8")  # the row has other settings now, so its runs are not asked for
    runner.collect("t", out, [])
    assert runner.load_record("t")["runs"] == []


@pytest.fixture
def in_process(runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process: a new one would import torch again."""
    monkeypatch.setattr(runner, "LocalEngine", InProcess)


@pytest.mark.usefixtures("in_process")
def test_the_command_records_each_run_and_stops_in_time(runner, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["t", "--out", str(own / "runs"), "--device", "cpu", *(w for s in SHORT for w in ("--set", s))]
    with pytest.raises(SystemExit, match="runs no column 'middle'; it runs 'low', 'high'"):
        runner.main([*words, "--columns", "middle"])
    part = ["--rows", "b", "--columns", "high", "--seeds", "1"]
    runner.main([*words, *part, "--within", "0"])
    assert "1 runs were not started in time" in capsys.readouterr().out
    assert not runner.record_path("t").exists()
    runner.main([*words, *part])
    (run,) = runner.load_record("t")["runs"]
    assert (run["row"], run["column"], run["seed"]) == ("b", "high", 1)
    page = (own.parent / "docs" / "results" / "t.md").read_text(encoding="utf-8")
    shown = f"{100 * run['splits']['id_test']['average']:.1f} (1 seed)"
    assert f"| b ‡ | not run yet | not run yet | {shown} |" in page  # --set has made it other than its preset
    assert "| a | not run yet | not run yet | not run yet | not run yet |" in page


def test_runs_are_compared_with_the_record_which_stays_as_it_is(
    runner, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "LocalEngine", InProcess)
    words = ["t", "--out", str(own / "runs"), "--device", "cpu", *(w for s in SHORT for w in ("--set", s))]
    part = [*words, "--rows", "b", "--columns", "low"]
    runner.main([*part, "--seeds", "0"])
    (run,) = runner.load_record("t")["runs"]
    run["splits"]["ood_test"]["average"] -= 0.0123
    runner.records.write_record("t", [run], runner.load_record("t")["settings"])
    page = own.parent / "docs" / "results" / "t.md"
    page.write_text("a page", encoding="utf-8")
    kept = {file: file.read_bytes() for file in (runner.record_path("t"), page)}
    made = (own / "runs" / "t").rglob("environment.json")
    first = next(made).stat().st_mtime_ns
    capsys.readouterr()
    for _ in range(2):  # a second call makes no run again
        runner.main([*part, "--compare"])
        lines = capsys.readouterr().out.splitlines()
        shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│ b")]
        assert [cells[:4] for cells in shown] == [["b", "low", str(seed), split] for seed in "01" for split in SPLITS]
        assert [cells[6] for cells in shown] == ["+0.00", "+1.23", "–", "–"]
        now = float(shown[1][5])
        assert float(shown[1][4].removesuffix(" ‡")) == pytest.approx(now - 1.23, abs=0.1)
        assert lines[-1] == (
            "1 of 2 values agree with the record to the printed digit. The largest difference is 1.23 (b, low, seed 0, "
            "OOD). 2 values have none in the record."
        )
    assert {file: file.read_bytes() for file in kept} == kept
    stamps = [file.stat().st_mtime_ns for file in (own / "runs" / "t").rglob("environment.json")]
    assert len(stamps) == 2
    assert first in stamps


def test_a_comparison_of_what_the_record_lacks_is_refused(runner, own: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        runner.main(["t", "--compare", "--missing"])


def test_a_table_that_does_not_exist_is_answered_with_those_that_do(runner, own: Path) -> None:
    with pytest.raises(SystemExit, match=r"Unknown table 'tt'\. Did you mean 't'\? Known: t\."):
        runner.main(["tt"])
    assert not (own.parent / "docs").exists()


def test_several_tables_share_the_workers_and_keep_their_records_apart(
    runner, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / "u.yaml").write_text((own / "t.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    started, collected = [], []
    engine = InProcess(do=lambda job: started.append(job.folder))
    monkeypatch.setattr(runner, "LocalEngine", lambda workers, **_: engine)
    monkeypatch.setattr(runner, "collect", lambda name, out, todo: collected.append((name, todo[0]["folder"])))
    runner.main(["u", "t", "--out", str(own / "runs"), "--device", "cpu"])
    assert len(started) == len(set(started)) == 2 * len(runner.jobs(runner.load_table("t")))
    assert [name for name, _ in collected] == sorted((name for name, _ in collected), reverse=True)
    assert all(folder.startswith(f"{name}/") for name, folder in collected)


def test_failed_runs_are_named_and_the_others_recorded(
    runner, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, seen = own / "runs", []
    job = {"preset": "color_mnist/erm", "overrides": [], "seed": 0, "explain": False}
    todo = [{**job, "folder": name} for name in ("good", "bad")]
    engine = InProcess(do=lambda job: "no" if Path(job.folder).name == "bad" else None)
    monkeypatch.setattr(runner, "LocalEngine", lambda workers, **_: engine)
    assert runner.run_all(todo, out, "cpu", 1, [], seen.append) == ["bad"]
    assert seen == todo[:1]
    assert "2/2 bad FAILED: no" in capsys.readouterr().out


@pytest.mark.ci
def test_runs_are_made_in_processes_of_their_own_with_one_thread(runner, own: Path, capfd) -> None:
    words = ["t", "--out", str(own / "runs"), "--device", "cpu", *(w for s in SHORT for w in ("--set", s))]
    runner.main([*words, "--rows", "b", "--columns", "low", "--workers", "2"])
    assert {run["seed"] for run in runner.load_record("t")["runs"]} == {0, 1}
    environments = [json.loads(file.read_text()) for file in (own / "runs").rglob("environment.json")]
    assert [one["threads"] for one in environments] == [1, 1]
    runner.main([*words, "--rows", "b", "--columns", "low", "--workers", "2", "--missing"])
    assert "FAILED" not in capfd.readouterr().out


def test_cells_that_nobody_has_come_first_and_then_seed_by_seed(runner, own: Path) -> None:
    jobs = runner.jobs(runner.load_table("t"))
    runner.records.write_record("t", [made("a", "low", 0, 0.5), made("b", "high", 1, 0.5)], {})
    order = [(job["row"], job["column"], job["seed"]) for job in runner.ordered("t", jobs)]
    first = [("a", "high", 0), ("b", "low", 0), ("a", "high", 1), ("b", "low", 1)]
    assert order == [*first, ("a", "low", 0), ("b", "high", 0), ("a", "low", 1), ("b", "high", 1)]
    missing = [(job["row"], job["column"], job["seed"]) for job in runner.ordered("t", jobs, missing=True)]
    assert missing == [*first, ("b", "high", 0), ("a", "low", 1)]


def test_a_partial_table_says_what_it_has(runner, own: Path) -> None:
    table = own / "t.yaml"
    table.write_text(TABLE.replace("seeds: [0, 1]", "seeds: [0, 1, 2]"), encoding="utf-8")
    runs = [made("a", "low", seed, value) for seed, value in ((0, 0.5), (1, 0.6), (2, 0.7))]
    runs += [made("a", "high", 0, 0.5), made("a", "high", 1, 0.6), made("b", "low", 0, 0.4, shortcut_score=[0.1, 0.2])]
    runner.records.write_record("t", runs, {})
    page = runner.render("t")
    assert "| a | 60.0 ± 10.0 | 60.0 ± 10.0 | 55.0 ± 7.1 (2 seeds) | 55.0 ± 7.1 (2 seeds) |" in page
    assert "| b | 40.0 (1 seed) | 40.0 (1 seed) | not run yet | not run yet |" in page
    assert "| b | 40.0 | 40.0 | not run yet | not run yet |" in page  # the lowest seeds
    assert "| b | 0 | 40.0 (0.20, 0.10) | not run yet |" in page  # seed by seed
    assert "| *paper, X* | *70* | *71.5* | *–* | *72 ± 0.5* |" in page


def test_a_table_with_groups_shows_chance(runner, own: Path) -> None:
    table = own / "t.yaml"
    text = TABLE.replace("{ID: id_test, OOD: ood_test}", "{ID: id_test, OOD: ood_test.worst_group@last, AUC: v.1}")
    text = text.replace("paper: {X: [[70, 71.5], [–, 72 ± 0.5]]}", "paper: {}")
    table.write_text(text, encoding="utf-8")
    assert "knows nothing" not in runner.render("t")
    table.write_text(text + "classes: 4\n", encoding="utf-8")
    page = runner.render("t")
    assert "| knows nothing (chance) | 25.0 | 25.0 | – | 25.0 | 25.0 | – |" in page
    assert "a fair coin over the 4 classes" in page


def test_a_transposed_table_has_a_line_a_column_and_a_mean_without_those_left_out(runner, own: Path) -> None:
    text = TABLE + "transposed: true\nclasses: 2\nleft_out: [high]\nnotes: The end.\n"
    (own / "t.yaml").write_text(text.replace("high: [data.rho=0.9]", "high: [data.rho=0.9], mid: [data.rho=0.9]"))
    runs = [made("a", column, seed, v) for seed in (0, 1) for column, v in (("low", 0.5 + seed / 10), ("high", 1.0))]
    runs += [made("a", "mid", 0, 0.7), made("b", "low", 0, 0.4)]
    runner.records.write_record("t", runs, {})
    page = runner.render("t")
    assert "## ID\n\n| | a | b | knows nothing (chance) |" in page
    assert "| low | 55.0 ± 7.1 | 40.0 (1 seed) | 50.0 |" in page
    assert "| high (for tuning) | 100.0 ± 0.0 | not run yet | 50.0 |" in page
    assert "| **mean** | 60.0 (1 seed) | not run yet | 50.0 |" in page, "seed 1 has no mid"
    assert "the mean over the 2 tasks, without the 1 that are for tuning" in page
    assert page.rstrip().endswith("The end.")


def test_a_record_keeps_what_predictions_know(runner, tmp_path: Path) -> None:
    run = described(runner, "color_mnist/erm", "val_core_auc", tmp_path / "run", "data.rho=0.9")
    result = sitar.load(tmp_path / "run", device="cpu").evaluate()["ood_test"]
    for name in ("core_auc", "shortcut_auc"):
        assert run["splits"]["ood_test"][name] == pytest.approx(result[name], abs=1e-4)
        assert run["splits"]["ood_test"]["intervals"][name] == pytest.approx(result["intervals"][name], abs=1e-4)
    assert "core_auc" not in run["splits"]["train"], "training has no groups"
    own = run["selections"]["val_core_auc"]
    assert own["epoch"] == run["selected_epoch"]
    assert own["ood_test"]["core_auc"] == run["splits"]["ood_test"]["core_auc"]


BIRDS = """\
title: Birds
splits: {average: test}
epoch: The last epoch is shown.
seeds: [0]
columns: {all: []}
rows:
  ERM: {preset: waterbirds/erm, set: [train.epochs=1]}
paper: {ERM: [[70]]}
"""


def test_a_run_on_half_a_copy_says_so_in_its_record_and_on_its_page(runner, own: Path, tmp_path: Path) -> None:
    made_data.waterbirds_original(tmp_path / "birds")
    (own / "t.yaml").write_text(BIRDS, encoding="utf-8")
    (job,) = runner.jobs(runner.load_table("t"))
    small = [f"data.root={tmp_path / 'birds'}", "data.image_size=16", "train.batch_size=4", "model.channels=[4]"]
    runner.work(job, own / "runs", "cpu", [*small, "train.evaluate=[val,test]"])
    runner.collect("t", own / "runs", [job])
    (run,) = runner.load_record("t")["runs"]
    counts = run["published_counts"]
    assert counts["agree"] is False
    assert f"(published {sum(PUBLISHED_MAJORITY['train']):,})" in counts["totals"]
    warning = '**The images of these rows are not those that were published:** "ERM". Their counts differ. In total: '
    assert f"# Birds\n\n{warning}{counts['totals']}." in runner.render("t")
    settings = runner.load_record("t")["settings"]
    for agreeing in ({"agree": True, "totals": "all"}, None):
        runner.records.write_record("t", [run | {"published_counts": agreeing}], settings)
        assert "published" not in runner.render("t")


def test_a_run_of_data_that_nobody_counted_has_no_counts(runner, tmp_path: Path) -> None:
    assert "published_counts" not in described(runner, "color_mnist/erm", "last", tmp_path / "run", "train.epochs=1")


def test_a_table_without_images_shows_the_paper_and_the_command(runner, own: Path) -> None:
    table = own / "t.yaml"
    table.write_text(TABLE + "no_images: true\nintervals: ood_test.average\n", encoding="utf-8")
    page = runner.render("t")
    assert "bootstrap" not in page
    cells = " | ".join(["no images here"] * 4)
    assert f"| a | {cells} |" in page
    assert "| *paper, X* | *70* | *71.5* | *–* | *72 ± 0.5* |" in page
    assert "python reproduce/run.py t --set data.root=DIR" in page
    assert "lowest" not in page
    table.write_text(TABLE, encoding="utf-8")
    assert "no images here" not in runner.render("t")
    table.write_text(TABLE + "no_images: true\n", encoding="utf-8")
    runner.records.write_record("t", [made("a", "low", 0, 0.5)], {})
    page = runner.render("t")
    assert "no images here" not in page
    assert "| b | not run yet |" in page


def test_a_row_with_earlier_settings_is_named(runner, own: Path) -> None:
    config = load_config("color_mnist/erm", ["data.rho=0.5"], 0).to_dict()
    now = runner.decisive(config)
    gone = {**now, "train.gone": 1}  # a setting that came or went with the code, and that WITHOUT does not know
    old = {**gone, "train.epochs": 7}
    settings = {"now": gone, "old": old}
    runner.records.write_record("t", [made("a", "low", 0, 0.5, settings="now"), made("b", "low", 0, 0.5)], settings)
    assert "‡" not in runner.render("t")
    runs = [made("a", "low", 0, 0.5, settings="old")]
    runner.records.write_record("t", runs, settings)
    assert list(runner.load_record("t")["settings"]) == ["old"]
    page = runner.render("t")
    assert '‡ These rows were made when train.epochs had another value: "a".' in page
    assert "| a ‡ | 50.0 (1 seed) |" in page
    jobs = [job for job in runner.jobs(runner.load_table("t")) if (job["row"], job["column"]) == ("a", "low")]
    assert [job["seed"] for job in runner.ordered("t", jobs, missing=True)] == [0, 1]
    both = [*runs, made("a", "low", 1, 0.9, settings="now")]  # a cell never mixes the two
    runner.records.write_record("t", both, settings)
    page = runner.render("t")
    assert "| a | 90.0 (1 seed) |" in page
    assert "‡" not in page


def test_a_setting_that_came_or_went_is_what_the_code_did_without_it(runner, own: Path) -> None:
    """A preset may give a new setting another value than the old code had: then its runs are earlier ones."""
    (own / "t.yaml").write_text(TABLE.replace("color_mnist/erm", "color_mnist/sitar"), encoding="utf-8")
    (low,) = (j for j in runner.jobs(runner.load_table("t")) if (j["row"], j["column"], j["seed"]) == ("a", "low", 0))
    now = runner.decisive(load_config(low["preset"], low["overrides"], 0).to_dict())
    assert now["method.score_floor"] is True, "else this test says nothing"
    before = {key: value for key, value in now.items() if key not in ("method.score_floor", "train.compile")}
    run = made("a", "low", 0, 0.5, settings="s") | {key: low[key] for key in ("preset", "overrides")}
    for then, earlier in (
        (now, []),
        (before, ["method.score_floor"]),  # without it, v^2 kept what chance gives it
        ({**before, "method.score_floor": True}, []),  # before train.compile nothing was compiled
        ({**now, "method.score_momentum": 0.0}, []),
        ({**now, "method.score_momentum": 0.9}, ["method.score_momentum"]),
    ):
        assert runner.changed(run, {"s": then}) == earlier
        assert runner.records.undeclared({"runs": [run], "settings": {"s": then}}) == set()
    record = {"runs": [run], "settings": {"s": {**now, "train.gone": 1}}}
    assert runner.changed(run, record["settings"]) == []
    assert runner.records.undeclared(record) == {"train.gone"}


@pytest.mark.parametrize(("method", "earlier"), [("diffusion", []), ("erm", ["model.head_hidden"])])
def test_a_setting_that_the_method_does_not_read_makes_no_run_an_earlier_one(
    runner, own: Path, method: str, earlier: list[str]
) -> None:
    (own / "t.yaml").write_text(TABLE.replace("color_mnist/erm", f"color_mnist/{method}"), encoding="utf-8")
    (low,) = (j for j in runner.jobs(runner.load_table("t")) if (j["row"], j["column"], j["seed"]) == ("a", "low", 0))
    now = runner.decisive(load_config(low["preset"], low["overrides"], 0).to_dict())
    run = made("a", "low", 0, 0.5, settings="s") | {key: low[key] for key in ("preset", "overrides")}
    assert runner.changed(run, {"s": {**now, "model.head_hidden": None}}) == earlier


def test_every_run_of_a_table_has_settings(runner) -> None:
    """A run without them could never be told to be an earlier one."""
    for name in runner.records.table_names():
        record = runner.records.record_so_far(name)
        assert {run.get("settings") for run in record["runs"]} <= record.get("settings", {}).keys(), name


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()


def test_a_commit_of_a_record_is_in_the_history_or_explained() -> None:
    folder = ROOT / "reproduce" / "records"
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("it needs a clone with its whole history")
    history = git("rev-list", "HEAD")
    explained = (folder / "README.md").read_text(encoding="utf-8")
    named = {
        (record.stem, commit)
        for record in folder.glob("*.json")
        for commit in re.findall(r'"commit": "([^"]+)"', record.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    lines = [line for line in explained.splitlines() if line.startswith("|")]
    unknown = {
        (record, commit)
        for record, commit in named
        if (commit.endswith("-dirty") or f"\n{commit}" not in f"\n{history}")
        and not any(commit[:7] in line and record in line for line in lines)
    }
    assert not unknown


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
    rows = [line for line in page.splitlines() if line.startswith("|") and f"audit_{name}.json" in line]
    assert [line.rstrip("| ").rpartition("| ")[2] for line in rows] == [words[run["verdict"]] for run in runs]


def test_nothing_stood_out_on_celeba() -> None:
    runs = json.loads((ROOT / "reproduce/records/audit_celeba.json").read_text(encoding="utf-8"))["runs"]
    assert [run["split"] for run in runs] == ["majority only", "all groups"]
    assert [run["audit"]["verdict"]["kind"] for run in runs] == ["none", "none"]
    assert runs[1]["seconds"] < 600


def test_images_are_read_as_fast_as_promised_and_alike() -> None:
    record = json.loads((ROOT / "reproduce/records/images_speed.json").read_text(encoding="utf-8"))
    for measured in record["measurements"]:
        assert measured["preparation, times faster"] >= 1.7
        assert measured["reading, times faster"] >= 10
        assert measured["largest difference of a pixel"] == 0
