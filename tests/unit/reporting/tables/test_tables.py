"""Tables of runs show what predictions know, and what a classifier has that knows nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.made_runs import make_run
from sitar.reporting.comparison import group_runs, read_runs
from sitar.reporting.tables.audit import first_look_table
from sitar.reporting.tables.explain import shared_axes_tables
from sitar.reporting.tables.runs import compare_table, knowledge_table
from sitar.reporting.tables.seeds import seeds_table
from sitar.reporting.tables.splits import splits_table
from sitar.reporting.tables.table import CHANCE
from sitar.run_folder import RunFolder


def with_aucs(path: Path, groups: bool = True, classes: tuple[str, ...] = ("red", "green")) -> RunFolder:
    run = make_run(path, "erm", classes=classes, explained=False)
    result = json.loads(run.result_file.read_text())
    for split in result["splits"].values():
        split.update({"core_auc": 0.9, "shortcut_auc": 0.4} if groups else {"worst_group": None, "groups": {}})
    run.result_file.write_text(json.dumps(result))
    return run


def test_a_comparison_ends_with_chance_and_a_second_table_has_both_aucs(tmp_path: Path) -> None:
    rows = group_runs(read_runs([with_aucs(tmp_path / "run").path]))
    assert compare_table(rows).rows[-1] == [CHANCE, "–", *["50.0"] * 4]
    table = knowledge_table(rows)
    assert table is not None
    assert table.columns[2:] == ["id_test core", "id_test shortcut", "ood_test core", "ood_test shortcut"]
    assert table.rows[0][2:] == ["90.0", "40.0"] * 2
    assert table.rows[-1] == [CHANCE, "–", *["50.0"] * 4]


def test_chance_is_that_of_the_number_of_classes(tmp_path: Path) -> None:
    runs = group_runs(read_runs([with_aucs(tmp_path / "run", classes=("a", "b", "c", "d")).path]))
    assert compare_table(runs, ["worst_group", "core_auc", "f1"]).rows[-1][2:] == ["25.0", "50.0", "–"] * 2


def test_without_groups_there_is_no_line_of_chance(tmp_path: Path) -> None:
    run = with_aucs(tmp_path / "run", groups=False)
    table = compare_table(group_runs(read_runs([run.path])))
    assert len(table.rows) == 1
    assert len(table.columns) == 6
    assert knowledge_table(group_runs(read_runs([run.path]))) is None
    assert len(splits_table("run", run.result()["splits"], run.result()).rows) == 4


def test_the_table_of_a_run_ends_with_chance(tmp_path: Path) -> None:
    splits = with_aucs(tmp_path / "run").result()["splits"]
    assert splits_table("run", splits, {"classes": ["red", "green"]}).rows[-1] == [
        "chance",
        "–",
        "50.0",
        "–",
        "50.0",
        "–",
    ]
    assert len(splits_table("run", splits, {}).rows) == 4, "the classes are not known"


def with_sizes(path: Path, split: str, **sizes: int) -> RunFolder:
    """A run of which groups of a split, such as `place1`, have so many samples of the first class."""
    run = make_run(path, "erm", explained=False)
    result = json.loads(run.result_file.read_text())
    for group, n in sizes.items():
        result["splits"][split]["groups"][f"label=0,place={group[-1]}"] = {"n": n, "accuracy": 0.5 if n else None}
    run.result_file.write_text(json.dumps(result | {"attributes": {"place": ["land", "water"]}}))
    return run


def notes_below(run: RunFolder) -> list[str]:
    """What stands below the tables of a run: of its splits, beside other runs, and beside its other seeds."""
    result = run.result()
    tables = [
        splits_table("run", result["splits"], result),
        compare_table(group_runs(read_runs([run.path]))),
        seeds_table("run", {0: result, 1: result}),
    ]
    return [table.note for table in tables]


def test_the_groups_that_figures_do_not_tell_of_stand_below_a_table(tmp_path: Path) -> None:
    for note in notes_below(with_sizes(tmp_path / "run", "ood_test", place0=9, place1=0)):
        assert "No sample of ood_test is of red, place water. So its numbers do not tell whether a model " in note
        assert "Fewer than 10 samples of ood_test are of red, place land: the accuracy there is hardly known." in note
    others = with_sizes(tmp_path / "large", "ood_test", place0=10), with_sizes(tmp_path / "other", "id_test", place1=0)
    for note in (note for run in others for note in notes_below(run)):
        assert "No sample" not in note, "of the split that decides"
        assert "Fewer than" not in note
    rows = group_runs(read_runs([tmp_path / "run"]))
    assert "No sample" not in compare_table(rows, ["average"]).note


def test_a_dash_for_a_worst_group_is_explained(tmp_path: Path) -> None:
    without = with_aucs(tmp_path / "without", groups=False)
    said = ["A dash for a worst group: no groups are known." in note for note in notes_below(without)]
    assert said == [True, True, False], "seeds have no such column then"
    assert not any("A dash" in note for note in notes_below(with_aucs(tmp_path / "with")))


@pytest.mark.parametrize(("most", "said"), [(2, "1 more cue in"), (1, "2 more cues in"), (3, None)])
def test_a_table_of_cues_says_how_many_more_there_are(most: int, said: str | None, tmp_path: Path) -> None:
    note = first_look_table(make_run(tmp_path / "run").audit()["first_look"], most).note
    assert said in note if said else "more cue" not in note


def test_sensitivities_on_shared_axes_are_per_standard_deviation_of_an_axis(tmp_path: Path) -> None:
    explanation = make_run(tmp_path / "run").explanation()
    (table,) = shared_axes_tables([explanation], ["run"], most=5)
    assert table.note.startswith("Mean change of the logits per standard deviation of the axis, at 100 held-out ")
    assert table.note.endswith("1 more axis in explain.json.")
