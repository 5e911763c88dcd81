"""The table of heads is of the split that decides, and says which head predicts."""

from __future__ import annotations

from sitar.reporting.tables.heads import heads_table

SPLITS = {
    "val": [{"average": 0.9, "worst_group": 0.8}, {"average": 0.7, "worst_group": 0.6}],
    "ood_test": [{"average": 0.5, "worst_group": 0.0}, {"average": 0.941}],
}


def test_each_head_has_a_line() -> None:
    table = heads_table({"predicts": 0, "splits": SPLITS, "answers": 16, "chosen": 1})
    assert table.title == "Heads, on ood_test"
    assert table.rows == [["0", "50.0", "0.0"], ["1", "94.1", "–"]]
    assert table.note.startswith("Head 0 predicts (method.head).")
    assert table.note.endswith("16 labels of unlabelled inputs on which heads differ most would choose 1.")


def test_files_without_labels_choose_none() -> None:
    table = heads_table({"predicts": 1, "splits": {"val": SPLITS["val"]}})
    assert table.title == "Heads, on val"
    assert "would choose" not in table.note
