"""Columns of words are read as lists of them would be, and keep each word once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sitar.data.words import Words

COLUMNS = st.lists(st.text(max_size=3), max_size=30)


@given(COLUMNS)
def test_a_column_is_the_list_of_its_words(words: list[str]) -> None:
    column = Words.of(words)
    assert list(column) == words
    assert [column[i] for i in range(len(column))] == words
    assert list(column[2:5]) == words[2:5]
    assert len(column.values) == len(set(words))
    assert column.array().tolist() == [word.rstrip("\0") for word in words]  # numpy pads with zeros


@given(st.lists(COLUMNS, max_size=4))
def test_columns_below_each_other(parts: list[list[str]]) -> None:
    joined = Words.join(map(Words.of, parts))
    assert list(joined) == [word for part in parts for word in part]
    assert len(joined.values) == len(set(joined))


@given(COLUMNS)
def test_words_that_become_the_same_are_one(words: list[str]) -> None:
    lower = Words.of(words).map(str.lower)
    assert list(lower) == [word.lower() for word in words]
    assert len(set(lower.values)) == len(lower.values)


@given(COLUMNS)
def test_an_ordered_column_has_sorted_values_and_only_those_of_its_rows(words: list[str]) -> None:
    ordered = Words.of(words)[1:].ordered()
    assert list(ordered) == words[1:]
    assert ordered.values == sorted(set(words[1:]))


def test_rows_with_a_word() -> None:
    column = Words.of(["a", "", "b", ""])
    np.testing.assert_array_equal(column.rows(lambda word: not word), [1, 3])
