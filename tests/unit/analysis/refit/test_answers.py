"""Answers are read from a file that `sitar ask` leaves, or from labels that exist already."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitar.analysis.refit.answers import Answer, read_answers
from sitar.errors import DataError


def read(folder: Path, text: str) -> list[Answer]:
    (folder / "answers.csv").write_text(text)
    return read_answers(folder / "answers.csv")


def test_answers_labels_and_probabilities(tmp_path: Path) -> None:
    assert read(tmp_path, "image,label\na.png,cat\nb.png,dog\n") == [Answer("a.png", "cat"), Answer("b.png", "dog")]
    text = "image,answer,why_asked,probability,at\na.png,cat,random,0.25,now\nb.png,dog,given,,now\n"
    assert read(tmp_path, text) == [Answer("a.png", "cat", 0.25), Answer("b.png", "dog")]


def test_skips_and_what_was_taken_back_do_not_count_and_the_last_answer_does(tmp_path: Path) -> None:
    text = "image,answer,why_asked\na,cat,x\nb,,x\nc,dog,x\nc,,undo\na,dog,x\n"
    assert read(tmp_path, text) == [Answer("a", "dog")]


def test_what_is_no_file_of_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no file of answers"):
        read_answers(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="has no column 'image'"):
        read(tmp_path, "file,answer\na,cat\n")
    with pytest.raises(DataError, match="has no column 'answer'"):
        read(tmp_path, "image,class\na,cat\n")
