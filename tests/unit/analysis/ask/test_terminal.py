"""A terminal asks the questions where there is no browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.asking import guesses, pool_of, save_images
from sitar.analysis.answers import AnswersFile, read_answers
from sitar.analysis.ask.session import Session
from sitar.analysis.ask.terminal import ask_in_terminal

TRUTH = np.random.default_rng(0).integers(0, 2, 40)


@pytest.fixture
def file(tmp_path: Path) -> AnswersFile:
    return AnswersFile(tmp_path / "answers.csv")


def test_a_terminal_asks_until_it_is_told_to_stop(tmp_path: Path, file: AnswersFile) -> None:
    files = save_images(tmp_path / "images", 40)
    pool = pool_of(guesses(np.random.default_rng(1), TRUTH, 0.9, 0.6), files=files)
    said: list[str] = []
    with Session.opened(pool, file) as session:
        ask_in_terminal(session, ["u\n", "1\n", "2\n", "bird\n", "dog\n", "u\n", "s\n", "q\n", "1\n"], said.append)
    assert [line.answer for line in read_answers(file.path).lines] == ["cat", "dog", ""]
    text = "\n".join(said)
    assert str(files[0].parent) in text
    assert "'bird' is no class" in text
    assert "There is no answer to take back." in text
    assert "1: cat  2: dog  (s: skip, u: undo, q: quit)" in text


def test_a_terminal_shows_an_array_as_a_file(file: AnswersFile) -> None:
    said: list[str] = []
    pool = pool_of(guesses(np.random.default_rng(1), TRUTH, 0.9, 0.6))
    with Session.opened(pool, file) as session:
        ask_in_terminal(session, [], said.append)
    assert file.path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "answers.png (row " in said[0]
