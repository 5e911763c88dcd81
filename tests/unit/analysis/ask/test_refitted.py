"""A refitted run is not judged by the answers that it was fitted to: it is right about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.asking import CLASSES, SIZE, save_images
from sitar.analysis.answers import Answer, Answers, AnswersFile
from sitar.analysis.ask.choosing import choose
from sitar.analysis.ask.evidence import Evidence
from sitar.analysis.ask.pool import Pool, read_pool
from sitar.analysis.ask.session import Session
from sitar.analysis.refit.refit import refit
from sitar.errors import DataError
from sitar.integrity import checksum
from sitar.run_folder import RunFolder

LEARNED, ALL = 12, 30  # the images whose answers the run was fitted to come first


def answers(start: int, stop: int) -> Answers:
    return Answers([Answer(f"deeper/{i:05}.png", CLASSES[i % 2]) for i in range(start, stop)])


@pytest.fixture(scope="module")
def refitted(place: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("refitted")
    lines = [f"{line.image},{line.answer}\n" for line in answers(0, LEARNED).lines]
    (folder / "labels.csv").write_text("image,label\n" + "".join(lines))
    return refit([place / "a"], folder / "labels.csv", place / "new", out=folder / "run", device="cpu", progress=False)


@pytest.fixture
def pool(place: Path, refitted: RunFolder) -> Pool:
    return read_pool([place / "a", refitted.path], place / "new", None, "cpu")


def test_images_that_a_candidate_was_fitted_to_are_left_out(pool: Pool, refitted: RunFolder) -> None:
    assert pool.names == [f"deeper/{i:05}.png" for i in range(LEARNED, ALL)]
    assert pool.fitted == {f"deeper/{i:05}.png" for i in range(LEARNED)}
    assert pool.predictions.shape == (2, ALL - LEARNED)
    said = f"12 of the 30 images are left out: {str(refitted.path)!r} was fitted to answers about them."
    assert pool.notes == (said,)


def test_only_new_answers_judge(pool: Pool) -> None:
    choice = choose(pool, answers(0, ALL))
    assert choice.answers == ALL - LEARNED
    assert choice.notes[1] == "12 answers do not count: a candidate was fitted to them."
    assert choice.standings == choose(pool, answers(LEARNED, ALL)).standings


def test_the_answers_of_the_fit_alone_cannot_choose(pool: Pool) -> None:
    with pytest.raises(DataError, match=r"0 answers cannot choose: .* 12 more answers do not count: a candidate was"):
        choose(pool, answers(0, LEARNED))
    with pytest.raises(DataError, match="None of the 1 answers is about one of these"):
        Evidence.read(pool, Answers([Answer("elsewhere.png", "cat")]))


def test_questions_go_on_about_other_images(pool: Pool, tmp_path: Path) -> None:
    file = AnswersFile(tmp_path / "answers.csv")
    with file.opened():
        for line in answers(0, LEARNED).lines:
            file.append(line)
    with Session.opened(pool, file) as session:
        asked = []
        while session.question is not None:
            asked.append(session.question.image)
            session.answer(session.question.image, 0)
        assert sorted(asked) == list(range(ALL - LEARNED))


def test_they_are_left_out_after_a_restart_and_under_other_names(
    place: Path, refitted: RunFolder, pool: Pool, tmp_path: Path
) -> None:
    copied = save_images(tmp_path / "copies", ALL, SIZE)  # equal pixels
    for file in copied:
        file.rename(file.with_name(f"copy-{file.name}"))
    for _ in range(2):
        again = read_pool([place / "a", refitted.path], tmp_path / "copies", tmp_path / "answers.csv", "cpu")
        assert again.names == [name.replace("deeper/", "copy-") for name in pool.names]
        assert again.fitted == {name.replace("deeper/", "copy-") for name in pool.fitted}


def test_where_nothing_else_is_left_the_images_are_refused(place: Path, refitted: RunFolder, tmp_path: Path) -> None:
    save_images(tmp_path / "images", LEARNED, SIZE)
    with pytest.raises(DataError, match="none is left to judge it by"):
        read_pool([place / "a", refitted.path], tmp_path / "images", None, "cpu")


def test_a_refit_of_before_is_read_and_said(place: Path, refitted: RunFolder, tmp_path: Path) -> None:
    content = refitted.files()
    result = json.loads(content["result.json"])
    assert len(result["refit"].pop("answered")) == LEARNED
    content["result.json"] = json.dumps(result).encode()
    sums = json.loads(content["done"])["sha256"] | {"result.json": checksum(content["result.json"])}
    content["done"] = json.dumps({"sha256": sums}).encode()
    old = RunFolder(tmp_path / "old")
    old.write_files(content)
    pool = read_pool([place / "a", old.path], place / "new", None, "cpu")
    assert len(pool) == ALL
    assert pool.notes[0].startswith(f"{str(old.path)!r} has not kept which answers it was fitted to.")
