"""Runs as one pandas frame."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sitar
from helpers.made_runs import make_run
from sitar.errors import ConfigError, RunError
from sitar.reporting.frame import COLUMNS, frame
from sitar.run_folder import Run


def test_every_value_of_a_result_has_a_row(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", "sitar", seed=3, explained=False)
    table = frame(folder)
    assert tuple(table.columns) == COLUMNS
    for split, metrics in folder.result()["splits"].items():
        rows = table[table["split"] == split]
        whole = rows[rows["group"].isna()].set_index("metric")
        for name in ("average", "worst_group"):
            assert whole.loc[name, "value"] == metrics[name]
            assert whole.loc[name, "n"] == metrics["n"]
        groups = rows[rows["group"].notna()].set_index("group")
        assert dict(groups["value"]) == {name: group["accuracy"] for name, group in metrics["groups"].items()}
        assert dict(groups["n"]) == {name: group["n"] for name, group in metrics["groups"].items()}
    assert set(table["seed"]) == {3}
    assert set(table["run"]) == {str(folder.path)}


def test_intervals_stand_beside_their_value(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", explained=False)
    given = {
        (split, metric): tuple(interval)
        for split, metrics in folder.result()["splits"].items()
        for metric, interval in metrics.get("intervals", {}).items()
        if interval is not None
    }
    table = frame(folder).dropna(subset="low")
    found = {(row.split, row.metric): (row.low, row.high) for row in table.itertuples()}
    assert found == given


def test_means_over_seeds_take_one_line(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "runs" / f"{seed}", seed=seed, explained=False) for seed in (0, 1)]
    table = sitar.frame(tmp_path / "runs")
    chosen = table[(table["split"] == "ood_test") & (table["metric"] == "average")]
    expected = sum(folder.result()["splits"]["ood_test"]["average"] or 0 for folder in folders) / 2
    assert chosen.groupby("preset")["value"].mean()["made/sitar"] == pytest.approx(expected)


def test_runs_come_in_any_form(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_run(tmp_path / "runs" / "a", explained=False)
    one = frame(folder)
    for form in (str(folder.path), folder.path, Run.read(folder), [folder], tmp_path / "runs"):
        assert frame(form).equals(one)
    assert len(frame([folder, folder.path])) == 2 * len(one)
    other = make_run(tmp_path / "runs" / "b", seed=1, explained=False)
    (other.path / "done").unlink()
    assert frame(tmp_path / "runs").equals(one)
    assert "1 run in" in caplog.text
    with pytest.raises(RunError, match="is not finished"):
        frame(other)


def test_what_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="no finished run in"):
        frame(tmp_path)
    with pytest.raises(RunError, match="There is no folder"):
        frame(tmp_path / "none")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"sitar\[pandas\]"):
        frame(tmp_path)
