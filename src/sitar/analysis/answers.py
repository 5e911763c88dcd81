"""The answers of a person are lines of a CSV file. Each is on the disk before the next question is asked.

The columns are `image,answer,why_asked,probability,at,check`. An empty answer means that the image was skipped. An
answer that is taken back stays, and a later line, `undo`, says so. A file of labels that exist already has the columns
`image,label`.

`check` is a checksum of the line. It is written with the line, in one go, and compared whenever the file is read. A
line that a person has written has none, nor has a file of an earlier release.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from operator import ne
from pathlib import Path

from sitar.errors import DataError, RunError
from sitar.files import read_regular, write_atomic
from sitar.locks import LockedError, locked

FIELDS = ("image", "answer", "why_asked", "probability", "at")  # all columns of an earlier release
CHECK = "check"
HEAD = (*FIELDS, CHECK)
DISAGREEMENT, RANDOM, GIVEN, UNDO = "disagreement", "random", "given", "undo"
MOST = 2**26  # bytes of a file of answers
LABEL = "label"  # the column of a file of labels that has the answers


@dataclass(frozen=True)
class Answer:
    """An answer says which class a person gave an image, and how the image came to be asked about.

    `probability` is that with which a question drew this image. It is None where the label existed already.
    """

    image: str
    answer: str
    why_asked: str = GIVEN
    probability: float | None = None
    at: str = ""

    @property
    def is_skipped(self) -> bool:
        return not self.answer


@dataclass(frozen=True)
class Answers:
    """These are the answers that hold, in the order in which they were given: at most one for each image."""

    lines: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def given(self) -> list[Answer]:
        """Return the answers without the images that were skipped."""
        return [line for line in self.lines if not line.is_skipped]


def read_answers(path: Path) -> Answers:
    """Read a file of answers or of labels. An error says what is wrong with it; the file is never changed."""
    content = _content(path)
    whole = _whole(content, path)
    rows = _rows(whole, path)
    note = f"The last line of {str(path)!r} was cut while it was written, and is ignored."
    return _folded(_lines(rows[0], rows[1:], path) if rows else [], [note] if whole != content else [])


def _whole(content: bytes, path: Path) -> bytes:
    """Return the content of a file of answers without a last line that a kill has cut. Other files are all whole."""
    head = _rows(content.partition(b"\n")[0], path)
    if not head or tuple(head[0]) not in (HEAD, FIELDS) or content.endswith(b"\n"):
        return content
    last = content.rfind(b"\n") + 1
    cells = next(iter(_rows(content[last:], path)), None)
    if cells is None:  # a line break of another kind, and nothing before it
        return content[:last]
    longest = len(_check(())) if tuple(head[0]) == HEAD else len(now())  # of the last cell
    was_emptied = tuple(head[0]) == HEAD and not cells[-1]  # by a person who has changed the line
    is_whole = last == 0 or (len(cells) == len(head[0]) and (was_emptied or len(cells[-1]) >= longest))
    return content if is_whole else content[:last]  # an editor may have left out the end of a line that is whole


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MOST)
    except OSError as error:
        raise DataError(f"The answers {str(path)!r} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:  # which begins with the path
        raise DataError(f"The answers {error}.") from error


def _rows(content: bytes, path: Path) -> list[list[str]]:
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    try:
        return [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise DataError(f"The answers {str(path)!r} cannot be read: {error}.") from error


def _is_flipped(text: str, meant: str) -> bool:
    """Say whether one character of a text is another one."""
    return len(text) == len(meant) and sum(map(ne, text, meant)) == 1


def _lines(head: list[str], body: list[list[str]], path: Path) -> list[Answer]:
    column = next((name for name in ("answer", LABEL) if name in head), None)
    if "image" not in head or column is None:
        raise DataError(
            f"{str(path)!r} holds no answers: it has the columns {', '.join(head)}. Expected {','.join(HEAD)}, or "
            f"labels that exist already as image,{LABEL}."
        )
    if any(_is_flipped(",".join(head), ",".join(own)) for own in (HEAD, FIELDS)):
        raise DataError(
            f"{str(path)!r} is damaged: its first line is {','.join(head)!r}. It should be {','.join(HEAD)!r}."
        )
    lines = []
    for number, row in enumerate(body, start=2):
        if len(row) != len(head):
            raise DataError(f"Line {number} of {str(path)!r} has {len(row)} cells, and its head has {len(head)}.")
        cells = dict(zip(head, row, strict=True))
        if tuple(head) == HEAD and cells[CHECK] and cells[CHECK] != _check(row[:-1]):
            raise DataError(
                f"Line {number} of {str(path)!r} is damaged: it is not what was written, by its checksum. Bring the "
                f"file from a copy. If you have changed the line yourself, empty its cell in the column {CHECK}."
            )
        try:
            probability = float(cells["probability"]) if cells.get("probability") else None
        except ValueError:
            probability = -1.0
        if probability is not None and not 0 < probability <= 1:
            raise DataError(
                f"Line {number} of {str(path)!r} has the probability {cells['probability']!r}: expected a number above "
                "0 and up to 1."
            )
        why = cells.get("why_asked") or GIVEN
        lines.append(Answer(cells["image"], cells[column].strip(), why, probability, cells.get("at", "")))
    return lines


def _folded(lines: Sequence[Answer], notes: list[str]) -> Answers:
    """Return the lines that hold: without those that were undone, and the last one of each image."""
    places: dict[str, list[int]] = {}  # of the lines of each image that hold
    for place, line in enumerate(lines):
        of_image = places.setdefault(line.image, [])
        if line.why_asked != UNDO:
            of_image.append(place)
        elif of_image:
            of_image.pop()
    last: dict[str, Answer] = {}
    changed = []
    for line in (lines[place] for place in sorted(itertools.chain(*places.values()))):
        before = last.get(line.image)
        if before is not None and not before.is_skipped:
            if line.is_skipped:
                continue  # an image that was answered is answered
            if line.answer != before.answer:
                changed.append(line.image)
        last[line.image] = line
    if changed:
        more = f" and {len(changed) - 1:,} more" if len(changed) > 1 else ""
        notes = [*notes, f"{changed[0]!r}{more} was answered twice, in different ways: the last answer counts."]
    return Answers(list(last.values()), notes)


class AnswersFile:
    """An answers file is written by one process at a time. A line is on the disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        """Take a file that exists or not. A file of labels is left alone, and answers go into a new one beside it."""
        self.path = path
        self.labels: Path | None = None
        if path.exists() and (rows := _rows(_content(path), path)) and tuple(rows[0]) not in (HEAD, FIELDS):
            _lines(rows[0], rows[1:], path)  # raises if it holds no labels
            self.labels, self.path = path, path.with_name(f"{path.stem}.answers.csv")

    @contextmanager
    def opened(self) -> Iterator[Answers]:
        """Hold the file for writing, and return what it holds already. A line that was cut is removed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.path.with_name(f".{self.path.name}.lock"), wait=False):
                yield self._begin()
        except LockedError as error:
            raise RunError(
                f"{error.owner} is another `sitar ask` that writes answers into {str(self.path)!r}. Close it first."
            ) from error

    def _begin(self) -> Answers:
        content = _content(self.path) if self.path.exists() else b""
        if not _rows(content, self.path):  # nothing, or line breaks alone
            given = read_answers(self.labels).given if self.labels is not None else []
            self._write(map(_cells, given))
            return read_answers(self.path)
        answers = read_answers(self.path)
        whole = _whole(content, self.path)
        if tuple((rows := _rows(whole, self.path))[0]) == FIELDS:
            self._write(rows[1:])  # of an earlier release: now with checksums
        elif whole != content:
            os.truncate(self.path, len(whole))
        elif not content.endswith(b"\n"):
            with self.path.open("ab") as file:
                file.write(b"\n")
        return answers

    def _write(self, rows: Iterable[Sequence[str]]) -> None:
        write_atomic(Path(os.path.realpath(self.path)), b"".join([_encoded(HEAD), *map(_line, rows)]))

    def append(self, answer: Answer) -> None:
        """Add a line, and wait until it is on the disk. If that fails, the file is as it was."""
        size = self.path.stat().st_size
        try:
            with self.path.open("ab") as file:
                file.write(_line(_cells(answer)))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            os.truncate(self.path, size)
            raise


def now() -> str:
    """Return the time, in seconds and for everybody the same."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cells(answer: Answer) -> tuple[str, ...]:
    return tuple("" if value is None else str(value) for value in astuple(answer))


def _line(cells: Sequence[str]) -> bytes:
    """Return a line with its checksum."""
    return _encoded([*cells, _check(cells)])


def _check(cells: Sequence[str]) -> str:
    """Return the CRC-32 of a line. It begins with a letter, or a spreadsheet would take some of them for numbers."""
    return f"c{zlib.crc32(_encoded(cells)):08x}"


def _encoded(row: Sequence[str]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(row)
    return buffer.getvalue().encode("utf-8", "surrogateescape")
