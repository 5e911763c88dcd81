"""What a column is taken for."""

from __future__ import annotations

import numpy as np
import pytest

from sitar.analysis.audit.columns import Columns, column_cue

Y = np.arange(60) % 2


def test_numbers_of_many_values_stay_numbers_and_what_is_missing_is_nan() -> None:
    cue = column_cue("age", [*(str(i / 2) for i in range(59)), ""])
    assert cue is not None
    assert cue.words == ()
    assert cue.values[:59, 0] == pytest.approx(np.arange(59) / 2)
    assert np.isnan(cue.values[59, 0])


def test_numbers_of_few_values_are_words() -> None:
    cue = column_cue("score", [str(i % 3) for i in range(60)])
    assert cue is not None
    assert cue.words == ("0", "1", "2")


@pytest.mark.parametrize("form", ["2024-01-{:02d}", "2024-01-{:02d}T10:00:00", "2024-01-{:02d} 10:00:00+02:00"])
def test_dates_are_days(form: str) -> None:
    cue = column_cue("taken", [form.format(1 + i % 30) for i in range(60)])
    assert cue is not None
    assert np.diff(cue.values[:30, 0]) == pytest.approx(np.ones(29))


def test_rare_words_are_taken_together_and_missing_ones_are_a_value() -> None:
    cue = column_cue("site", ["a"] * 20 + ["b"] * 20 + [""] * 12 + list("cdefghij"))
    assert cue is not None
    assert cue.words == ("(missing)", "(others)", "a", "b")
    assert np.bincount(cue.values).tolist() == [12, 8, 20, 20]


@pytest.mark.parametrize("words", [[f"p{i}" for i in range(60)], [f"p{i // 3}" for i in range(60)]])
def test_names_are_no_cue(words: list[str]) -> None:
    assert column_cue("patient", words) is None


@pytest.mark.parametrize(
    ("name", "words", "twin", "left_out"),
    [("ward", ["A", "B"], True, None),
     ("class_no", ["1", "2"], False, "is the label under another name"),
     ("finding", ["CAT", "Dog "], False, "is the label under another name"),
     ("site", ["x", "x"], False, "has one value for all samples")],
)  # fmt: skip
def test_columns_that_follow_the_label(name: str, words: list[str], twin: bool, left_out: str | None) -> None:
    columns = Columns()
    columns.add(name, [words[label] for label in Y], Y, ("cat", "dog"))
    assert columns.twins == ({name: {"A": "cat", "B": "dog"}} if twin else {})
    assert columns.left_out.get(name) == left_out
    assert columns.cues == []


def test_one_sample_that_contradicts_makes_a_column_a_cue() -> None:
    columns = Columns()
    columns.add("ward", ["B", *(("A", "B")[label] for label in Y[1:])], Y, ("cat", "dog"))
    assert [cue.name for cue in columns.cues] == ["ward"]
    assert columns.twins == {}
