"""What a run was given besides inputs and labels: one list, from which marks, notes and sentences come."""

from __future__ import annotations

import pytest

from sitar.given import ANSWERS, GROUPS, KEYS, KINDS, NUISANCES, UNLABELLED, Kind, given_to, kinds_of, marked, notes
from sitar.reporting.tables.sweep import BY_GROUPS, BY_OOD
from sitar.run_folder import Result

ALL = {"needs_groups": True, "answers": 50, "unlabelled": 1200, "nuisances": ["site", "blur"]}


def test_most_runs_were_given_nothing() -> None:
    for result in ({}, {"needs_groups": False, "answers": 0, "unlabelled": 0, "nuisances": []}):
        assert kinds_of(result) == []
        assert marked("erm", result) == "erm"
        assert notes([result]) == []
        assert given_to(result) == {"needs_groups": False, "answers": 0, "unlabelled": 0, "nuisances": []}


def test_what_was_given_is_marked_and_explained() -> None:
    assert kinds_of(ALL) == [GROUPS, ANSWERS, UNLABELLED, NUISANCES]
    assert given_to(ALL) == ALL
    assert marked("sitar", ALL) == "sitar † +50 answers § ¶"
    assert notes([{}, {"unlabelled": 3}, {"unlabelled": 4}]) == [UNLABELLED.note]


def test_a_label_that_says_it_already_has_no_second_mark() -> None:
    assert marked("sitar +50 answers", ALL) == "sitar +50 answers † § ¶"


@pytest.mark.parametrize("kind", KINDS, ids=KEYS)
def test_a_kind_is_a_key_of_a_result_and_its_note_explains_its_mark(kind: Kind) -> None:
    assert kind.key in Result.__annotations__
    mark = kind.mark(ALL[kind.key])
    assert kind.note.startswith((mark, "+N answers"))
    assert kind.on_card(ALL[kind.key]).startswith(("It ", "Its "))


def test_no_two_things_have_one_mark() -> None:
    marks = [BY_GROUPS, BY_OOD, *(kind.mark(ALL[kind.key]) for kind in KINDS)]
    assert len(set(marks)) == len(marks)
