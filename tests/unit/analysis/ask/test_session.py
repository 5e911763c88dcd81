"""A session keeps every answer, and goes on after a restart where it stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.asking import guesses, pool_of
from sitar.analysis.answers import Answer, AnswersFile, read_answers
from sitar.analysis.ask.pool import Pool
from sitar.analysis.ask.session import Session, keys_of
from sitar.errors import DataError

TRUTH = np.random.default_rng(0).integers(0, 2, 40)


@pytest.fixture
def pool() -> Pool:
    return pool_of(guesses(np.random.default_rng(1), TRUTH, 0.9, 0.6))


@pytest.fixture
def file(tmp_path: Path) -> AnswersFile:
    return AnswersFile(tmp_path / "answers.csv")


def test_a_restart_goes_on_where_it_stopped(pool: Pool, file: AnswersFile) -> None:
    seen = []
    for stop in (3, 4, 5):
        with Session.opened(pool, file, seed=5) as session:
            for _ in range(stop):
                assert session.question is not None
                image, later = session.question.image, session.upcoming
                seen.append(image)
                assert session.answer(image, int(TRUTH[image]))
                assert session.question == later
    assert len(set(seen)) == 12
    kept = read_answers(file.path).lines
    assert [line.image for line in kept] == [pool.names[image] for image in seen]
    assert [line.answer for line in kept] == [pool.classes[TRUTH[image]] for image in seen]
    assert [line.why_asked for line in kept] == (["disagreement"] * 3 + ["random"]) * 3
    with Session.opened(pool, AnswersFile(file.path.with_name("other.csv")), seed=5) as whole:
        for image in seen:
            assert whole.answer(image, int(TRUTH[image])), "a session without a stop asks the same"


def test_only_the_question_that_waits_is_answered(pool: Pool, file: AnswersFile) -> None:
    with Session.opened(pool, file) as session:
        assert session.question is not None
        image = session.question.image
        assert session.answer(image, 0)
        assert not session.answer(image, 1), "a second click on the same image"
    assert [line.answer for line in read_answers(file.path).lines] == ["cat"]


def test_undo_asks_the_same_question_again(pool: Pool, file: AnswersFile) -> None:
    with Session.opened(pool, file) as session:
        assert not session.undo()
        first = session.question
        assert first is not None
        session.answer(first.image, 0)
        second = session.question
        assert second is not None
        session.answer(second.image, None)
        assert session.choice.skipped == 1
        assert session.undo()
        assert session.question == second
        assert session.undo()
        assert session.question == first
        assert not session.undo()
        session.answer(first.image, 1)
    assert [line.answer for line in read_answers(file.path).lines] == ["dog"]


def test_a_skipped_image_is_not_asked_again(pool: Pool, file: AnswersFile) -> None:
    with Session.opened(pool, file) as session:
        seen = set()
        while session.question is not None:
            seen.add(session.question.image)
            session.answer(session.question.image, None)
        assert len(seen) == len(pool)
        assert session.words.endswith("Every image was asked about.")
        assert session.choice.answers == 0


def test_labels_that_exist_are_not_asked_about(pool: Pool, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("image,label\n" + "".join(f"{pool.names[i]},{pool.classes[TRUTH[i]]}\n" for i in range(30)))
    with Session.opened(pool, AnswersFile(labels)) as session:
        assert session.choice.answers == 30
        while session.question is not None:
            assert session.question.image >= 30
            session.answer(session.question.image, 0)
        assert session.choice.answers == 40
        for _ in range(10):
            assert session.undo()
        assert not session.undo(), "labels that existed are not taken back"


def test_answers_that_do_not_fit_are_refused_and_kept(pool: Pool, file: AnswersFile) -> None:
    with file.opened():
        file.append(Answer(pool.names[0], "bird", "random", 0.1))
    before = file.path.read_bytes()
    with pytest.raises(DataError, match="'bird'"), Session.opened(pool, file):
        pass
    assert file.path.read_bytes() == before


@pytest.mark.parametrize(
    ("classes", "keys"),
    [
        (("cat", "dog"), ["1", "2"]),
        (("0", "1", "2"), ["0", "1", "2"]),
        (("A", "B"), ["a", "b"]),
        (("a", "s"), ["1", "2"]),  # s means skip in a terminal
        (("a", "A"), ["1", "2"]),
    ],
)
def test_keys_are_the_names_of_classes_where_they_can_be(classes: tuple[str, ...], keys: list[str]) -> None:
    assert keys_of(classes) == keys


def test_many_classes_have_no_key_twice() -> None:
    keys = keys_of([f"class {i}" for i in range(100)])
    used = [key for key in keys if key]
    assert len(used) == len(set(used)) > 25
    assert not {"q", "s", "u", " "} & set(used)
    assert len(keys) == 100
