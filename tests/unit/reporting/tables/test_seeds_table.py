"""The table of several seeds of one setting."""

from __future__ import annotations

from typing import Any

import numpy as np

from sitar.reporting.tables.seeds import seeds_table


def result(average: float, worst: float | None = 0.5) -> dict[str, Any]:
    figures = {"average": average, "worst_group": worst}
    return {"splits": dict.fromkeys(("train", "val", "id_test", "ood_test"), figures), "selected_epoch": 7}


def test_a_row_for_each_seed_and_their_mean() -> None:
    values = [0.5, 0.6, 0.8]
    table = seeds_table("a preset", dict(enumerate(map(result, values))))
    assert table.columns[:3] == ["seed", "val average", "id_test average"]
    assert not any(column.startswith("train") for column in table.columns)
    assert [row[0] for row in table.rows] == ["0", "1", "2", "mean"]
    assert [row[1] for row in table.rows[:3]] == ["50.0", "60.0", "80.0"]
    assert table.rows[3][1] == f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"
    assert table.rows[0][-1] == "7"


def test_a_seed_that_has_failed_has_dashes_and_counts_in_no_mean() -> None:
    table = seeds_table("a preset", {0: result(0.5), 3: None, 4: result(0.7)})
    assert table.rows[1] == ["3", *["–"] * (len(table.columns) - 2), "failed"]
    assert table.rows[-1][1].startswith("60.0 ±")
    assert "1 of 3 seeds have failed" in table.note
    assert [row[0] for row in seeds_table("a preset", {0: None, 1: None}).rows] == ["0", "1"]


def test_data_without_groups_has_no_column_of_the_worst() -> None:
    assert not any("worst" in column for column in seeds_table("a preset", {0: result(0.5, None)}).columns)
