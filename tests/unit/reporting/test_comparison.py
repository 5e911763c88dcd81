"""Runs on the same data stand together, and comparisons have names that tell them apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.made_runs import make_run
from helpers.pages import read
from sitar.presets import load_config
from sitar.reporting.comparison import compare_runs, group_runs, read_runs, unlike_presets
from sitar.reporting.html.report import write_report
from sitar.reporting.html.sentences import summary
from sitar.reporting.tables.latex import latex
from sitar.reporting.tables.runs import compare_table
from sitar.reporting.tables.table import Table, marked
from sitar.run_folder import RunFolder


@pytest.mark.parametrize(
    ("data", "checksums", "names"),
    [
        ([{"rho": 0.5}, {"rho": 0.9}], "aa", ["made, rho=0.5", "made, rho=0.9"]),
        ([{"root": "x/a"}, {"root": "y/b"}], "ab", ["made, root=a", "made, root=b"]),
        ([{"file": "x/a.npz"}, {"file": "y/b.npz"}], "ab", ["made, file=a.npz", "made, file=b.npz"]),
        ([{"root": "x/a.npz"}, {"root": "y/a.npz"}], "ab", ["made, checksum=a", "made, checksum=b"]),
        ([{}, {}], "ab", ["made, checksum=a", "made, checksum=b"]),
    ],
)
def test_parts_of_different_data_have_different_names(
    data: list[dict[str, object]], checksums: str, names: list[str], tmp_path: Path
) -> None:
    """The last two runs have the same settings and seed, on a file that has changed: neither is left out."""
    several = []
    for place, (settings, checksum) in enumerate(zip(data, checksums, strict=True)):
        run = make_run(tmp_path / str(place), data=settings, explained=False)
        environment = json.loads(run.environment_file.read_text())
        run.environment_file.write_text(json.dumps({**environment, "data_checksum": checksum}))
        several.append(run.path)
    comparisons, left_out = compare_runs(several)
    assert [comparison.name for comparison in comparisons] == names
    assert not left_out
    page = read(write_report(several, tmp_path / "report.html")).text
    assert all(page.count(name) == 2 for name in names), "in the notice and above the part"


def given_unlabelled(run: RunFolder, n: int, checksum: str) -> Path:
    """The run says that its method was given unlabelled inputs."""
    for file, more in ((run.result_file, {"unlabelled": n}), (run.environment_file, {"unlabelled_checksum": checksum})):
        file.write_text(json.dumps({**json.loads(file.read_text()), **more}))
    return run.path


def test_unlabelled_inputs_are_marked_and_do_not_make_other_data(tmp_path: Path) -> None:
    """Both runs are judged on the same data, so they are compared. The one that was given more is no rival."""
    plain = make_run(tmp_path / "plain", method="erm", accuracy=0.7, explained=False)
    data = {"unlabelled": "/somewhere/new"}
    more = make_run(tmp_path / "more", method="divdis", accuracy=0.9, data=data, explained=False)
    paths = [plain.path, given_unlabelled(more, 90, "x")]
    (comparison,), left_out = compare_runs(paths)
    assert not left_out
    assert [row.given["unlabelled"] for row in comparison.rows] == [0, 90]
    assert [row.was_given_more for row in comparison.rows] == [False, True]
    table = compare_table(comparison.rows)
    assert [line[0] for line in table.rows[:2]] == ["erm", "divdis §"]
    assert table.note.endswith("§ was given unlabelled inputs too, from where the model will be used.")
    assert "§" not in compare_table(comparison.rows[:1]).note
    said = " ".join(summary(comparison))
    assert "Given unlabelled inputs from where the model will be used" in said
    assert "divdis" not in said.split("Given unlabelled")[0], "it leads without being a rival"


def test_runs_with_other_unlabelled_inputs_are_other_runs(tmp_path: Path) -> None:
    """They have the same settings, but for where the inputs lie."""
    runs = []
    for name, checksum in (("a", "x"), ("b", "y"), ("c", "x")):
        data = {"unlabelled": f"/somewhere/{name}"}
        run = make_run(tmp_path / name, method="divdis", data=data, seed=int(name == "c"), explained=False)
        runs.append(given_unlabelled(run, 90, checksum))
    rows = group_runs(read_runs(runs))
    assert [len(row.runs) for row in rows] == [2, 1]
    assert len({row.label for row in rows}) == 2
    assert all("data.unlabelled=" in row.label for row in rows)


def of_file(run: RunFolder, digest: str | None) -> Path:
    """The run says that its method comes from a user's own file of this digest. None: from an installed package."""
    source = f"Mine in the file mine.py (sha256 {digest})" if digest else "mine:Mine of the package 'mine' (1.0)"
    known = json.loads(run.environment_file.read_text())
    run.environment_file.write_text(json.dumps({**known, "plugins": {"method": source}}))
    return run.path


def test_runs_of_another_version_of_a_file_are_other_runs(tmp_path: Path) -> None:
    """Seeds 0 and 1 have the same code. Seed 2 has other code, and so has a second run of seed 0."""
    digests = ["a" * 12, "a" * 12, "b" * 12, "b" * 12, None]
    runs = [
        of_file(make_run(tmp_path / str(place), method="mine", seed=seed, explained=False), digest)
        for place, (seed, digest) in enumerate(zip((0, 1, 2, 0, 3), digests, strict=True))
    ]
    rows = group_runs(read_runs(runs))
    assert [row.seeds for row in rows] == [[0, 1], [0, 2], [3]]
    assert [row.label for row in rows] == [
        "made/mine code=aaaaaaaa", "made/mine code=bbbbbbbb", "made/mine code=installed",
    ]  # fmt: skip
    (comparison,), left_out = compare_runs(runs)
    assert not left_out
    assert [row.label for row in comparison.rows] == ["mine code=aaaaaaaa", "mine code=bbbbbbbb", "mine code=installed"]
    (row,) = group_runs(read_runs(runs[:2]))
    assert row.label == "made/mine"


def test_a_run_that_does_not_know_its_code_stays_with_its_setting(tmp_path: Path) -> None:
    lost = make_run(tmp_path / "0", method="mine", explained=False)
    lost.environment_file.unlink()
    known, other = (
        of_file(make_run(tmp_path / digest, method="mine", seed=seed, explained=False), digest * 12)
        for seed, digest in ((1, "a"), (2, "b"))
    )
    rows = group_runs(read_runs([lost.path, known, other]))
    assert [(row.label, row.seeds) for row in rows] == [
        ("made/mine code=aaaaaaaa", [0, 1]), ("made/mine code=bbbbbbbb", [2]),
    ]  # fmt: skip


def of_preset(run: RunFolder, preset: str, *overrides: str, seed: int = 0) -> Path:
    """The run says that it was made from a preset of ours, with these settings changed."""
    run.write_config({**load_config(preset, overrides, seed).to_dict(), "preset": preset})
    return run.path


def test_a_row_that_is_unlike_its_preset_says_so(tmp_path: Path) -> None:
    """Its label alone does not: no other row has the preset."""
    erm = of_preset(make_run(tmp_path / "erm", method="erm", explained=False), "planted/erm")
    sitar = make_run(tmp_path / "sitar", explained=False)
    changed = ["train.epochs=1", "train.data_on=host", "train.log=[tensorboard]"]
    paths = [erm, of_preset(sitar, "planted/sitar", *changed)]
    words = "Unlike its preset, planted/sitar has train.epochs=1, train.least_steps=0."
    rows = group_runs(read_runs(paths))
    assert compare_table(rows).note.splitlines()[1:] == [words]
    assert [line[0] for line in compare_table(rows).rows[:2]] == ["planted/erm", "planted/sitar"]
    assert words in latex(compare_table(rows), "tab:x").replace(r"\_", "_")
    page = read(write_report(paths, tmp_path / "report.html")).text
    assert "Unlike its preset, sitar has train.epochs=1, train.least_steps=0." in page
    of_preset(RunFolder(erm), "planted/erm", "train.epochs=1")
    (note,) = compare_table(group_runs(read_runs(paths))).note.splitlines()[1:]
    assert note == "Unlike their presets, all rows have train.epochs=1, train.least_steps=0."


def test_what_a_label_names_is_not_said_again(tmp_path: Path) -> None:
    paths = []
    for alpha in ("0.25", "1.0"):
        run = make_run(tmp_path / alpha, explained=False)
        paths.append(of_preset(run, "planted/sitar", f"method.alpha={alpha}", "train.epochs=2"))
    said = unlike_presets(group_runs(read_runs(paths)))
    assert said == ["Unlike their presets, all rows have train.epochs=2, train.least_steps=0."]


def test_another_method_is_held_against_its_own_defaults(tmp_path: Path) -> None:
    changed = ["method.name=jtt", "method.copies=3"]
    path = of_preset(make_run(tmp_path / "0", method="jtt", explained=False), "planted/erm", *changed)
    (note,) = unlike_presets(group_runs(read_runs([path])))
    assert note == "Unlike its preset, planted/erm has method.name=jtt, method.copies=3."


@pytest.mark.parametrize("preset", ["gone/erm", "mine.yaml", None])
def test_without_a_preset_of_ours_nothing_is_said(preset: object, tmp_path: Path) -> None:
    run = make_run(tmp_path / "0", method="erm", explained=False)
    run.write_config({**load_config("planted/erm", ["train.epochs=1"]).to_dict(), "preset": preset})
    assert unlike_presets(group_runs(read_runs([run.path]))) == []


def test_all_settings_of_a_method_that_is_unknown_here_are_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "0", method="erm", explained=False)
    run.write_config({**load_config("planted/erm").to_dict(), "method": {"name": "mine", "strength": 3}})
    (note,) = unlike_presets(group_runs(read_runs([run.path])))
    assert note == "Unlike its preset, planted/erm has method.name=mine, method.strength=3."


def test_a_table_of_one_run_has_the_marks_of_what_it_was_given() -> None:
    table = Table("made, seed 0", ["split"], [["val"]], "Percent.")
    assert marked(table, {}).title == "made, seed 0"
    given = marked(table, {"needs_groups": True, "answers": 50, "unlabelled": 90, "nuisances": ["site"]})
    assert given.title == "made, seed 0 † +50 answers § ¶"
    assert [word in given.note for word in ("group labels", "50", "unlabelled", "ignore", "Percent.")] == [
        True,
        False,
        True,
        True,
        True,
    ]


def told(path: Path, *names: str, seed: int = 0) -> Path:
    """A run that was told what to ignore, of the same preset as all such runs."""
    run = make_run(path, "sitar", seed=seed, explained=False)
    config = run.read_config()
    run.write_config({**config, "method": {**config["method"], "nuisances": list(names)}})
    return run.path


def test_a_report_calls_rows_with_long_labels_as_their_folders(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "plain", "erm", explained=False).path,
        told(tmp_path / "hospital", "the hospital, by its column in the table"),
        *(told(tmp_path / "corner" / f"seed{seed}", "the top left corner of the image", seed=seed) for seed in (0, 1)),
        told(tmp_path / "short", "x"),
    ]
    (comparison,), _ = compare_runs(runs)
    assert [row.label for row in comparison.rows] == ["erm", "hospital", "corner", "sitar method.nuisances=['x']"]
    assert [run.label for run in comparison.runs][2:4] == ["corner, seed 0", "corner, seed 1"]
    default = told(tmp_path / "made" / "sitar" / "seed0", "what is told by no name of a folder")
    (comparison,), _ = compare_runs([*runs, default])
    assert comparison.rows[-1].label.startswith("sitar method.nuisances="), "nobody has chosen the name sitar"
    rows = group_runs(read_runs(runs))
    assert rows[1].label.startswith("made/sitar method.nuisances=['the hospital"), "compare --against takes labels"
    twin = told(tmp_path / "elsewhere" / "hospital", "another hospital, which lies in another folder")
    (comparison,), _ = compare_runs([*runs, twin])
    assert len({row.label for row in comparison.rows}) == len(comparison.rows)
    assert "hospital" not in [row.label for row in comparison.rows], "two folders have this name"
