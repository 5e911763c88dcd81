"""Answers are kept one by one, survive a kill, and are never silently dropped."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import pytest

from helpers.bits import damaged, flipped
from sitar.analysis.answers import FIELDS, UNDO, Answer, AnswersFile, read_answers
from sitar.errors import DataError, RunError

AT = "2026-11-16T12:00:00+00:00"
HEAD = ",".join(FIELDS) + "\n"


def line(image: str, answer: str = "cat", why: str = "random", probability: float | None = 0.1) -> Answer:
    return Answer(image, answer, why, probability, AT)


def undo(image: str) -> Answer:
    return Answer(image, "", UNDO, None, AT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.csv"


def write(path: Path, *lines: Answer) -> None:
    file = AnswersFile(path)
    with file.opened():
        for one in lines:
            file.append(one)


def test_what_is_written_is_read(path: Path) -> None:
    lines = [line("a.png"), line('b, "c".png', "dog"), line("d.png", "", probability=1 / 3), line("\udcff.png")]
    write(path, *lines)
    answers = read_answers(path)
    assert answers.lines == lines
    assert answers.given == [lines[0], lines[1], lines[3]]
    assert answers.notes == []


def test_an_answer_is_synced_before_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill of the machine, and not only of the process, loses nothing."""
    synced = []
    real = os.fsync
    file = AnswersFile(path)
    with file.opened():
        monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(path.read_text()), real(handle)))
        file.append(line("a.png"))
        file.append(line("b.png"))
    assert [text.count("\n") for text in synced] == [2, 3]
    assert synced[-1] == path.read_text()


def test_undo_takes_the_last_line_of_its_image_back(path: Path) -> None:
    write(path, line("a"), line("b"), undo("b"), line("b", "dog"), line("c", ""), undo("c"))
    assert read_answers(path).lines == [line("a"), line("b", "dog")]
    assert path.read_text().count("\n") == 7, "what was undone stays in the file"
    write(path, undo("b"), undo("b"))
    assert read_answers(path).lines == [line("a")]


@pytest.mark.parametrize("cut", range(1, len(f"b,cat,random,0.1,{AT},c01234567")))
def test_a_line_that_a_kill_has_cut_is_ignored_and_said(path: Path, cut: int) -> None:
    write(path, line("a"), line("b"))
    content = path.read_bytes()
    path.write_bytes(content[: -1 - cut])
    answers = read_answers(path)
    if cut == len("c01234567"):  # only the checksum is cut: the answer is there
        assert (answers.lines, answers.notes) == ([line("a"), line("b")], [])
        return
    assert answers.lines == [line("a")]
    assert "was cut" in answers.notes[0]
    assert path.read_bytes() == content[: -1 - cut], "reading changes nothing"
    write(path, line("c"))
    assert read_answers(path).lines == [line("a"), line("c")]
    assert read_answers(path).notes == []


@pytest.mark.parametrize("bit", range(8))
def test_one_flipped_bit_is_named_and_the_file_never_used(path: Path, bit: int) -> None:
    lines = [line("a.png"), line('b, "c".png', "dog"), line("é.png", "", probability=1 / 3), undo("a.png")]
    write(path, *lines)
    sound = path.read_bytes()
    for byte in range(len(sound)):
        content = flipped(sound, 8 * byte + bit)
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(str(path))):
            read_answers(path)
        if byte % 10 == 0:
            with pytest.raises(DataError, match=re.escape(str(path))), AnswersFile(path).opened():
                pass
        assert path.read_bytes() == content
        assert [file.name for file in path.parent.glob("*.csv")] == [path.name]
    path.write_bytes(sound)
    assert read_answers(path).lines == lines[1:3]


def test_a_line_that_a_person_has_changed_needs_no_checksum(path: Path) -> None:
    write(path, line("a"), line("b"))
    path.write_text(path.read_text().replace("a,cat", "a,dog"))
    with pytest.raises(DataError, match=r"Line 2 .* is damaged.* empty its cell in the column check"):
        read_answers(path)
    text = path.read_text().splitlines()
    path.write_text("\n".join([text[0], text[1].rpartition(",")[0] + ",", text[2], f"c,cat,random,0.1,{AT},"]) + "\n")
    assert read_answers(path).lines == [line("a", "dog"), line("b"), line("c")]
    path.write_text(path.read_text().rstrip("\n"))  # as some editors do
    write(path, line("d"))
    assert read_answers(path).lines == [line("a", "dog"), line("b"), line("c"), line("d")]


@pytest.mark.parametrize(
    "head", ["image,answer,why_asked,probability,at,note", "image,answer,probability,at", "n,image,answer"]
)
def test_other_columns_do_no_harm(path: Path, head: str) -> None:
    cells = {"image": "a", "answer": "cat", "probability": "0.1", "why_asked": "random"}
    path.write_text(head + "\n" + ",".join(cells.get(name, "") for name in head.split(",")) + "\n")
    assert [(one.image, one.answer) for one in read_answers(path).lines] == [("a", "cat")]


def test_a_link_stays_a_link(path: Path) -> None:
    shared = path.with_name("shared.csv")
    shared.write_text(HEAD + f"a,cat,random,0.1,{AT}\n")
    path.symlink_to(shared)
    write(path, line("b"))
    assert path.is_symlink()
    assert read_answers(shared).lines == [line("a"), line("b")]


def test_a_file_of_an_earlier_release_has_checksums_once_it_is_written(path: Path) -> None:
    path.write_text(HEAD + f"a,cat,random,0.1,{AT}\nb,cat,random,0.1,{AT}\nc,ca")
    assert read_answers(path).lines == [line("a"), line("b")]
    write(path, line("d"))
    assert read_answers(path).lines == [line("a"), line("b"), line("d")]
    assert path.read_text().splitlines()[0] == HEAD.strip() + ",check"
    for byte in range(len(HEAD) + 6, path.stat().st_size - 1):
        with damaged(path, 8 * byte), pytest.raises(DataError):
            read_answers(path)


def test_a_last_line_without_its_end_that_is_whole_counts(path: Path) -> None:
    write(path, line("a"), line("b"))
    path.write_bytes(path.read_bytes()[:-1])  # as some editors do
    assert read_answers(path).lines == [line("a"), line("b")]
    write(path, line("c"))
    assert read_answers(path).lines == [line("a"), line("b"), line("c")]


def test_of_contradictory_answers_the_last_counts_and_is_said(path: Path) -> None:
    write(path, line("a"), line("b"), line("a", "dog"), line("b"), line("b", ""))
    answers = read_answers(path)
    assert {one.image: one.answer for one in answers.lines} == {"a": "dog", "b": "cat"}
    (note,) = answers.notes
    assert "'a' was answered twice" in note


def test_labels_that_exist_are_answers(path: Path) -> None:
    path.write_text("\ufeffpatient,image,label\r\n7,a.png,cat\r\n8,b.png,dog", encoding="utf-8")
    assert read_answers(path).lines == [Answer("a.png", "cat"), Answer("b.png", "dog")]


def test_a_file_of_labels_stays_as_it_is(path: Path) -> None:
    path.write_text("image,label\na.png,cat\n")
    file = AnswersFile(path)
    with file.opened() as answers:
        assert answers.lines == [Answer("a.png", "cat")]
        file.append(line("b.png"))
    assert path.read_text() == "image,label\na.png,cat\n"
    assert file.path.name == "answers.answers.csv"
    with AnswersFile(path).opened() as answers:
        assert answers.lines == [Answer("a.png", "cat"), line("b.png")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("name,class\na,cat\n", "holds no answers"),
        (HEAD + "a,cat\nb,cat,random,0.1,\n", "Line 2 .* has 2 cells"),
        (HEAD + "a,cat,random,often,\n", "probability 'often'"),
        (HEAD + "a,cat,random,1.5,\n", "probability '1.5'"),
        (HEAD + "a,cat,random,nan,\n", "probability 'nan'"),
    ],
)
def test_what_is_no_file_of_answers_is_refused_and_left_alone(path: Path, content: str, reason: str) -> None:
    path.write_text(content)
    with pytest.raises(DataError, match=reason):
        read_answers(path)
    with pytest.raises(DataError, match=reason), AnswersFile(path).opened():
        pass
    assert path.read_text() == content


def test_a_file_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_answers(path)


def test_an_empty_file_holds_no_answers(path: Path) -> None:
    path.touch()
    assert read_answers(path).lines == []
    write(path, line("a"))
    assert read_answers(path).lines == [line("a")]


@pytest.mark.parametrize("content", [b"\r", b"\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r"])
def test_a_file_of_line_breaks_holds_no_answers(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    write(path, line("a.png"))
    assert [answer.image for answer in read_answers(path).given] == ["a.png"]


def test_a_line_break_of_another_kind_at_the_end_costs_no_answer(path: Path) -> None:
    write(path, line("a.png"))
    path.write_bytes(path.read_bytes() + b"\r")
    write(path, line("b.png"))
    assert [answer.image for answer in read_answers(path).given] == ["a.png", "b.png"]


def test_one_process_writes_at_a_time(path: Path) -> None:
    with (
        AnswersFile(path).opened(),
        pytest.raises(RunError, match=f"Process {os.getpid()} is another `sitar ask`"),
        AnswersFile(path).opened(),
    ):
        pass


def test_a_disk_that_is_full_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AnswersFile(path)
    with file.opened():
        file.append(line("a"))
        before = path.read_bytes()

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                file.append(line("b"))
        assert path.read_bytes() == before
        file.append(line("c"))
    assert read_answers(path).lines == [line("a"), line("c")]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_holds_no_answers(path: Path, kind: str) -> None:
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    for read in (read_answers, AnswersFile):
        with pytest.raises(DataError, match=r"answers\.csv' cannot be read: it is not a regular file"):
            read(path)


def test_a_file_that_is_too_large_is_refused_with_the_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"x" * 1001)
    monkeypatch.setattr("sitar.analysis.answers.MOST", 1000)
    with pytest.raises(DataError, match="has 1,001 bytes, and at most 1,000 are read"):
        read_answers(path)


def test_thousands_of_answers_that_were_taken_back_take_a_moment(path: Path) -> None:
    rows = [f"{i}.png,cat,random,0.1,{AT}" for i in range(40_000)]
    undone = [f"{i}.png,,undo,,{AT}" for i in reversed(range(40_000))]
    path.write_text(HEAD + "\n".join([*rows, *undone]) + "\n")
    began = time.process_time()
    assert read_answers(path).lines == []
    assert time.process_time() - began < 2


@pytest.mark.parametrize("seed", range(20))
def test_what_holds_is_what_a_plain_reading_says(seed: int, path: Path) -> None:
    draw = random.Random(seed)
    lines = [
        undo(draw.choice("abc")) if draw.random() < 0.4 else line(draw.choice("abc"), draw.choice(["cat", "dog", ""]))
        for _ in range(40)
    ]
    cells = (f"{one.image},{one.answer},{one.why_asked},{one.probability or ''},{one.at}" for one in lines)
    path.write_text(HEAD + "\n".join(cells) + "\n")
    kept: list[Answer] = []
    for one in lines:
        if one.why_asked != UNDO:
            kept.append(one)
        elif places := [place for place, other in enumerate(kept) if other.image == one.image]:
            kept.pop(places[-1])
    held: dict[str, Answer] = {}
    for one in kept:
        if one.answer or not (one.image in held and held[one.image].answer):
            held[one.image] = one
    assert read_answers(path).lines == list(held.values())
