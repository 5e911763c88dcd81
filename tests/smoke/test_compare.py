"""`sitar compare --against`: its forms of output say the same, and what cannot be compared is refused."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers import made_data
from helpers.cli import sitar, sitar_error
from helpers.made_runs import make_run
from helpers.runs import TINY_MODEL, run, settings
from sitar.config import section_config
from sitar.evaluation.imported_predictions import import_predictions
from sitar.registry import DATASETS
from sitar.run_folder import Run, RunFolder

CLASSES = ("red", "green")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compared")
    for method, accuracy in (("erm", 0.6), ("jtt", 0.61), ("dfr", 0.9)):
        for seed in (0, 1, 2):
            make_run(place / f"{method}{seed}", method, seed=seed, accuracy=accuracy, samples=400, explained=False)
    return place


def runs(folder: Path, *methods: str) -> list[str]:
    return sorted(str(path) for method in methods for path in folder.glob(f"{method}?"))


def test_the_forms_of_output_agree(folder: Path) -> None:
    arguments = ["compare", *runs(folder, "erm", "jtt", "dfr"), "--against", "ERM"]
    records = {
        (record["runs"], record["split"], record["metric"]): record
        for record in csv.DictReader(io.StringIO(sitar(*arguments, "--csv").stdout))
    }
    text, tex = sitar(*arguments).stdout, sitar(*arguments, "--latex").stdout
    compared = 0
    for row in json.loads(sitar(*arguments, "--json").stdout):
        for split, metrics in row["splits"].items():
            for name, found in metrics.items():
                if found["mean"] is None:
                    continue
                record = records[row["runs"], split, name]
                assert float(record["mean"]) == found["mean"]
                verdict = found.get("against")
                assert bool(record["words"]) == (verdict is not None) == (row["runs"] != "made/erm")
                if verdict is not None:
                    compared += 1
                    assert verdict["words"] == record["words"]
                    assert verdict["words"] in text
                    assert verdict["words"].replace("(-", "($-$").replace("to -", "to $-$") in tex
                    assert float(record["low"]) == verdict["low"] <= verdict["better_by"] <= verdict["high"]
                    assert verdict["told_apart"] == (verdict["p"] < 0.05) == ("told apart" not in verdict["words"])
    assert compared == 8
    assert records["made/dfr", "ood_test", "average"]["words"].startswith("better by ")
    assert records["made/jtt", "ood_test", "worst_group"]["words"].startswith("cannot be told apart (")
    assert "made/dfr †" in text
    assert "† was given group labels" in text
    assert r"made/dfr $^\dagger$" in tex
    assert r"$^\dagger$ was given group labels" in tex
    assert "Difference from made/erm" in text


def test_one_seed_is_said_to_be_one(folder: Path) -> None:
    words = "says nothing about other seeds"
    one = sitar("compare", folder / "erm0", folder / "jtt0", "--against", "erm").stdout
    assert words in " ".join(one.split())
    assert "McNemar" in one
    assert "where 0 lies outside of its interval" in " ".join(one.split())
    three = sitar("compare", *runs(folder, "erm", "jtt"), "--against", "erm").stdout
    assert words not in " ".join(three.split())
    assert "McNemar" not in three


def test_a_comparison_of_the_same_runs_is_the_same_every_time(folder: Path) -> None:
    arguments = ["--against", "erm", "--csv"]
    there = sitar("compare", *runs(folder, "erm", "jtt", "dfr"), *arguments).stdout.splitlines()
    back = sitar("compare", *reversed(runs(folder, "erm", "jtt", "dfr")), *arguments).stdout.splitlines()
    assert sorted(there) == sorted(back)


REFUSED = {
    "unknown row": (["--against", "sitar"], "Unknown row 'sitar'. Known: made/erm, made/jtt. Give its runs too."),
    "two forms": (["--csv", "--json"], "Give one of --csv, --latex and --json"),
    "nothing stored": (
        ["--against", "erm", "--metric", "auroc"],
        "Nothing can be compared with made/erm: no other row",
    ),
    "no figure": (["--csv", "--metric", "auroc"], "No run has one of auroc on a test split"),
    "no file": (["--predictions", "mine=nothing.csv"], "There is no file 'nothing.csv'"),
    "no name": (["--predictions", "nothing.csv"], "is not written NAME=FILE"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(arguments: list[str], message: str, folder: Path) -> None:
    assert message in sitar_error("compare", folder / "erm0", folder / "jtt0", *arguments)


def test_folders_that_cannot_be_compared_are_left_out_with_a_line(folder: Path, tmp_path: Path) -> None:
    """As `runs/*` may hold a first look of `sitar audit`, a run that still trains, and a copy."""
    shutil.copytree(folder / "erm0", tmp_path / "training")
    (tmp_path / "training/done").unlink()
    shutil.copytree(folder / "erm0", tmp_path / "twin")
    (tmp_path / "look").mkdir()
    others = [tmp_path / name for name in ("look", "training", "twin")]
    good = [folder / "erm0", folder / "jtt0"]
    for form in ([], ["--csv"], ["--json"], ["--latex"]):
        done = sitar("compare", *good, *others, *form)
        assert done.stdout == sitar("compare", *good, *form).stdout
        lines = done.stderr.splitlines()
        assert [line.partition(": ")[2].partition(": ")[0] for line in lines] == list(map(str, others))
        reasons = ("it has no config.yaml", "is not finished", "the same run as")
        assert all(reason in line for reason, line in zip(reasons, lines, strict=True))
    said = sitar_error("compare", *others[:2])
    assert said.startswith("Error: No finished run to compare. ")
    assert all(reason in said for reason in ("it has no config.yaml", "is not finished"))


@pytest.mark.parametrize("command", ["compare", "report"])
@pytest.mark.parametrize("below", ["my runs", "runs/color_mnist/erm"])
def test_a_folder_of_runs_is_told_how_to_give_all_of_them(
    command: str, below: str, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "erm0", tmp_path / below / "seed0")
    given = below.partition("/")[0]
    glob = "'my runs'/*" if given == below else "runs/*/*/*"
    assert f"To take all runs in {given!r}, write {glob}." in sitar_error(command, given, cwd=tmp_path)
    (tmp_path / "empty").mkdir()
    assert "To take all" not in sitar_error(command, "empty", cwd=tmp_path)


def test_one_row_and_other_data_are_refused(folder: Path, tmp_path: Path) -> None:
    assert "no other row to compare" in sitar_error("compare", folder / "erm0", "--against", "erm")
    other = make_run(tmp_path / "other", "lff", samples=300, explained=False).path
    assert "not tested on the same samples" in sitar_error("compare", folder / "erm0", other, "--against", "erm")


@pytest.fixture(scope="module")
def files(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What three runs of jtt predict, in tables of another order."""
    place = tmp_path_factory.mktemp("predictions")
    for seed in (0, 1, 2):
        stored = RunFolder(folder / f"jtt{seed}").predictions()
        y, said = stored["ood_test/y"], stored["ood_test/logits"].argmax(1)
        lines = [f"{i},{CLASSES[said[i]]},{CLASSES[y[i]]}" for i in np.random.default_rng(seed).permutation(len(y))]
        (place / f"{seed}.csv").write_text("\n".join(["index,prediction,label", *lines]))
    return sorted(place.iterdir())


def compared(*arguments: str | Path) -> dict[str, dict]:
    """Return what is printed of each row, on the main split."""
    printed = json.loads(sitar("compare", *arguments, "--against", "erm", "--json").stdout)
    return {row["runs"]: {"seeds": row["seeds"], **row["splits"]} for row in printed}


def test_predictions_of_other_code_stand_beside_runs(folder: Path, files: list[Path]) -> None:
    """The predictions of a run, brought from outside in another order, have its figures and its differences."""
    mine = compared(folder / "erm0", f"--predictions=mine={files[0]}")["mine"]
    jtt = compared(folder / "erm0", folder / "jtt0")["made/jtt"]
    for metric in ("average", "worst_group"):
        ours, theirs = (row["ood_test"][metric] for row in (mine, jtt))
        assert ours["against"] == theirs["against"]
        assert ours["values"] == pytest.approx(theirs["values"])
    assert mine["ood_test"]["core_auc"]["mean"] is None, "one class does not rank"
    assert mine["id_test"]["average"]["mean"] is None


def test_seeds_of_other_code_are_not_paired_with_ours(folder: Path, files: list[Path]) -> None:
    """Their order says nothing: which file is called seed 0 is up to the user. All seeds of both rows count."""
    erm = runs(folder, "erm")
    orders = [[f"--predictions=mine={file}" for file in order] for order in (files, files[::-1], files[1:])]
    there, back, two = (compared(*erm, *order)["mine"] for order in orders)
    jtt = compared(*erm, *runs(folder, "jtt"))["made/jtt"]
    for metric in ("average", "worst_group"):
        first, turned, paired = (row["ood_test"][metric]["against"] for row in (there, back, jtt))
        assert first == pytest.approx(turned)
        assert first["better_by"] == pytest.approx(paired["better_by"])
        assert first["low"] != pytest.approx(paired["low"], abs=1e-6), "Welch's interval is another"
        assert (first["t_test"], first["mcnemar"]) == (None, None)
    assert two["ood_test"]["average"]["against"]["shared_seeds"] == "0 1"
    note = "paired over test samples alone"
    assert note in " ".join(sitar("compare", *erm, *orders[0], "--against", "erm").stdout.split())
    assert note not in " ".join(sitar("compare", *erm, *runs(folder, "jtt"), "--against", "erm").stdout.split())


@pytest.mark.ci
def test_what_sitar_predicts_can_be_brought_back_by_name(tmp_path: Path) -> None:
    """A table of `sitar predict` over all images of the data: names say which of them are of which split."""
    (tmp_path / "data").mkdir()
    config = settings(
        "erm", data=made_data.table(tmp_path / "data").model_dump(), model=TINY_MODEL, train={"epochs": 1}
    )
    folder = run(config, tmp_path / "run")
    out = tmp_path / "out.csv"
    sitar("predict", folder.path, tmp_path / "data" / "table.csv", "--out", out, "--device", "cpu", "-q")
    arguments = ["compare", folder.path, f"--predictions=mine={out}", "--against", "erm", "--json", "--metric"]
    row = json.loads(sitar(*arguments, "average", "--metric", "auroc").stdout)[1]
    recorded = folder.result()["splits"]
    assert row["runs"] == "mine"
    for split, metrics in row["splits"].items():
        assert metrics["average"]["mean"] == recorded[split]["average"]
        assert metrics["auroc"]["mean"] == pytest.approx(recorded[split]["auroc"])
        assert metrics["average"]["against"]["better_by"] == 0
        assert metrics["average"]["against"]["words"].startswith("cannot be told apart (-")
    lines = out.read_text().splitlines()
    out.write_text("\n".join([*lines, lines[-1].replace("scans/", "others/")]))
    assert "1 are not of it, such as 'others/" in sitar_error(*arguments, "average")
    out.write_text("\n".join([*lines, *lines[1:]]))
    assert "more than once" in sitar_error(*arguments, "average")
    out.write_text("\n".join(lines[:2]))
    assert "are missing, such as 'scans/" in sitar_error(*arguments, "average")


@pytest.mark.ci
def test_what_data_keeps_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many files are brought by name, and though samples are read and then prepared."""
    (tmp_path / "data").mkdir()
    data = {**made_data.table(tmp_path / "data").model_dump(), "rho": 0.6}
    folder = run(settings("erm", data=data, model=TINY_MODEL, train={"epochs": 1}), tmp_path / "run")
    kept = DATASETS.get("table").samples(section_config("data", data)).files
    out = tmp_path / "out.csv"
    out.write_text("\n".join(["name,prediction", *(f"{name},0" for name in kept)]))
    caplog.clear()
    with caplog.at_level("INFO", "sitar"):
        found = import_predictions([f"a={out}", f"a={out}"], Run.read(folder))
    assert [one.seed for one in found] == [0, 1]
    said = [record.message.partition(" ")[0] for record in caplog.records]
    assert said == ["4", "data.rho"]  # groups of which test has few samples, and what rho keeps
