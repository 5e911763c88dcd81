"""Values over records: what an expression means, and what an unknown name is told."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev

import pytest
from scipy import stats

from helpers.scripts import script

from .test_reproduce import TABLE, made

SEEDS = {"a": (0.50, 0.60, 0.79), "b": (0.40, 0.55, 0.60)}


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The language over a made-up table `t` and a made-up record `other`."""
    language = script("reproduce/values.py")
    monkeypatch.setattr(language.records, "HERE", tmp_path)
    table = TABLE.replace("  a:", "  a (first):").replace("seeds: [0, 1]", "seeds: [0, 1, 2]")
    (tmp_path / "t.yaml").write_text(table, encoding="utf-8")
    runs = [
        made("a (first)" if row == "a" else row, column, seed, value, shortcut_score=[0.1, 0.7, 0.3])
        for row, numbers in SEEDS.items()
        for column in ("low", "high")
        for seed, value in enumerate(numbers)
        if (row, column) != ("b", "high")
    ]
    language.records.write_record("t", runs, {})
    first = {"rho": 0.9, "set": ["x.y=1"], "auc": 0.5, "n": 2}
    other: dict = {"runs": [first, {"rho": 0.9, "set": {"size": 7}, "auc": 0.7, "n": 3}]}
    other |= {"far": {"list": [1, 4], "0.5": {"one": 0.25}}}
    (tmp_path / "records" / "other.json").write_text(json.dumps(other), encoding="utf-8")
    return language


def numbers(values, expression: str) -> list[float | None]:
    return [value.number for value in values.evaluate(expression)]


def test_statistics_are_those_of_the_seeds(values) -> None:
    sample = [100 * value for value in SEEDS["a"]]
    found = numbers(values, "t; a; low; OOD; mean ± sd / low to high / seeds / seed 1")
    assert found == pytest.approx([mean(sample), stdev(sample), 50, 79, 3, 60])
    ends = stats.t.interval(0.95, 2, mean(sample), stats.sem(sample))
    assert numbers(values, "t; a (first); low; id_test; interval") == pytest.approx(ends)
    assert numbers(values, "t; a; low; v.1 / v.2 / v.3; mean") == pytest.approx([0.7, 0.3, 0.1])


def test_differences_are_taken_seed_by_seed(values) -> None:
    paired = [100 * (a - b) for a, b in zip(SEEDS["a"], SEEDS["b"], strict=True)]
    found = numbers(values, "t; a - b; low; OOD; mean ± sd and low")
    assert found == pytest.approx([mean(paired), stdev(paired), min(paired)])
    assert stdev(paired) != pytest.approx(stdev(SEEDS["a"]) * 100)
    assert numbers(values, "t; a - paper, X; low; OOD; mean") == pytest.approx([63 - 71.5])
    assert numbers(values, "t; a; low - high; OOD; mean ± sd") == pytest.approx([0, 0])


def test_parts_with_several_names_give_values_in_order(values) -> None:
    assert numbers(values, "t; paper, X; *; ID / OOD; mean") == [70, 71.5, None, 72]
    assert numbers(values, "t; b and a; *; OOD; high") == pytest.approx([60, None, 79, 79])
    assert values.fill("{{ t; b and a; low; ID; mean ± sd; .0 }} %") == "52 ± 10 and 63 ± 15 %"
    assert values.fill("{{ t; b; low; ID;\n  mean }} and {{ t; b; high; OOD; mean }}") == "51.7 and not run yet"


def test_the_mean_of_columns_leaves_out_those_for_tuning(values, tmp_path: Path) -> None:
    record = json.loads((tmp_path / "records" / "t.json").read_text(encoding="utf-8"))
    for run in record["runs"]:
        if run["column"] == "high":
            run["splits"]["ood_test"]["average"] += 0.1
    (tmp_path / "records" / "t.json").write_text(json.dumps(record), encoding="utf-8")
    both = numbers(values, "t; a; mean of columns; OOD; mean ± sd")
    assert both == pytest.approx([100 * mean(SEEDS["a"]) + 5, 100 * stdev(SEEDS["a"])])
    assert numbers(values, "t; b; mean of columns; OOD; mean") == [None], "b was not run in one of the columns"
    table = (tmp_path / "t.yaml").read_text(encoding="utf-8")
    (tmp_path / "t.yaml").write_text(f"{table}left_out: [high]\n", encoding="utf-8")
    assert numbers(values, "t; a; mean of columns; OOD; mean") == pytest.approx([100 * mean(SEEDS["a"])])


def test_other_records_are_read_by_their_path(values) -> None:
    assert numbers(values, "other.json: runs[rho=0.9].auc; low to high") == [0.5, 0.7]
    assert numbers(values, "other.json: runs[rho=0.9][x.y=1].auc / n; percent") == [50, 200]
    assert numbers(values, "other.json: runs[x.y!=1].auc") == numbers(values, "other.json: runs[size=7].auc") == [0.7]
    assert numbers(values, "other.json: far.list[0] + far.list[1] - runs[0].n") == [3]
    assert numbers(values, "other.json: far.list[-1] - far.list[0]") == [3]
    assert numbers(values, "other.json: far[0.5].one") == [0.25]
    assert list(values.sample("other.json: runs[rho=0.9].auc - runs[rho=0.9].n").values()) == [-1.5, -2.3]


def test_items_of_a_record_are_kept_by_what_counts_in_a_table(values, tmp_path: Path) -> None:
    with (tmp_path / "t.yaml").open("a", encoding="utf-8") as file:
        file.write("left_out: [high]\n")
    columns = {"low": [1, 2], "high": [40], "of another table": [500]}
    items = [{"column": name, "draws": [{"auc": value} for value in auc]} for name, auc in columns.items()]
    (tmp_path / "records" / "third.json").write_text(json.dumps({"runs": items}), encoding="utf-8")
    assert numbers(values, "third.json: runs[column counts in t].draws.auc; mean and high") == [1.5, 2]
    assert numbers(values, "third.json: runs.draws.auc; high") == [500]
    with pytest.raises(values.ValueNameError, match="nothing has row counts in t"):
        values.evaluate("third.json: runs[row counts in t].draws.auc; mean")
    with pytest.raises(values.ValueNameError, match="no table 'u'; tables are t"):
        values.evaluate("third.json: runs[column counts in u].draws.auc; mean")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("u; a; low; OOD; mean", "no table 'u'; tables are t"),
        ("t; c; low; OOD; mean", r"no row 'c'; rows are 'a \(first\)', 'b', 'paper, X'"),
        ("t; a; middle; OOD; mean", "no column 'middle'; columns are 'low', 'high'"),
        ("t; a; low; OUD; mean", "no 'OUD'; splits are ID, OOD"),
        ("t; a; low; OOD; median", "no statistic 'median'; statistics are mean, sd"),
        ("t; a; low; OOD", "five parts"),
        ("u.json: x", "no record 'u'; records are other, t"),
        ("other.json: near", "no 'near'; there is runs, far"),
        ("other.json: runs[rho=0.8].auc", "nothing has rho=0.8"),
        ("other.json: runs[rho=0.9].auc", "2 numbers and needs a statistic"),
    ],
)
def test_an_unknown_name_is_told_the_known_ones(values, expression: str, said: str) -> None:
    with pytest.raises(values.ValueNameError, match=said):
        values.evaluate(expression)


def test_a_short_name_of_two_rows_is_refused(values, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        TABLE.replace("  a:", "  a (first):").replace("  b:", "  a (second):"), encoding="utf-8"
    )
    with pytest.raises(values.ValueNameError, match=r"no row 'a'; rows are 'a \(first\)', 'a \(second\)'"):
        values.evaluate("t; a; low; OOD; mean")


def test_a_number_that_rounds_to_zero_has_no_sign(values) -> None:
    assert [values.show(number, 1) for number in (-0.04, -0.06, 1234.5)] == ["0.0", "-0.1", "1,234.5"]


@pytest.mark.parametrize(
    "expression",
    ["other.json: runs", "other.json: far.list[9]", "x" * 300 + ".json: a", "other.json: runs[rho=0.9] - far"],
)
def test_what_leads_to_no_numbers_is_said_in_one_line(values, expression: str) -> None:
    with pytest.raises(values.ValueNameError):
        values.evaluate(expression)


def test_a_damaged_record_is_named(values, tmp_path: Path) -> None:
    (tmp_path / "records" / "t.json").write_text('{"runs": [')
    with pytest.raises(SystemExit, match=r"t\.json' cannot be read"):
        values.evaluate("t; a; low; OOD; mean")
    (tmp_path / "records" / "t.json").write_text('{"runs": [null], "settings": 7}')
    with pytest.raises(values.ValueNameError, match="a record is damaged"):
        values.evaluate("t; a; low; OOD; mean")
