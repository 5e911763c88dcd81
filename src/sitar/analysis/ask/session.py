"""A session asks one question after the other, keeps each answer, and says in words what is known so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sitar.analysis.answers import UNDO, Answer, Answers, AnswersFile, now, read_answers
from sitar.analysis.ask.choosing import Choice, Evidence, judge
from sitar.analysis.ask.next_image import Order, Question
from sitar.analysis.ask.pool import Pool, refuse_what_cannot_be_shown

OWN_KEYS = tuple("0123456789abcdefghijklmnoprtvwxyz")
MARKS = "123456789abcdefghijklmnoprtvwxyz"  # the keys of classes; q, s and u mean quit, skip and undo


def keys_of(classes: Sequence[str]) -> list[str]:
    """Return a key for each class: its name where all names are keys, such as digits, and else one after the other.

    Where there are more classes than keys, the last ones have none.
    """
    names = [name.lower() for name in classes]
    if len(set(names)) == len(names) and all(name in OWN_KEYS for name in names):
        return names
    return [MARKS[place : place + 1] for place in range(len(classes))]


class Session:
    """A session holds the answers so far and the question that waits. It is the same after a restart."""

    def __init__(self, pool: Pool, file: AnswersFile, answers: Answers, seed: int = 0) -> None:
        self.pool, self.file = pool, file
        self.lines = list(answers.lines)
        self.notes = answers.notes
        self.order = Order(pool.disagree, seed)
        self._judge()

    @classmethod
    @contextmanager
    def opened(cls, pool: Pool, file: AnswersFile, seed: int = 0) -> Iterator[Session]:
        """Hold the file of answers while the session lasts. Answers that do not fit the pool are refused."""
        refuse_what_cannot_be_shown(pool)
        with file.opened() as answers:
            yield cls(pool, file, answers, seed)

    @property
    def question(self) -> Question | None:
        """Return the question that waits, or None if every image was asked about."""
        return self.questions[0] if self.questions else None

    @property
    def upcoming(self) -> Question | None:
        """Return the question after the one that waits, whatever its answer is."""
        return self.questions[1] if len(self.questions) > 1 else None

    def answer(self, image: int, label: int | None) -> bool:
        """Keep the answer to the question that waits; None skips it. Return False if another question waits."""
        if self.question is None or image != self.question.image:
            return False
        answer = "" if label is None else self.pool.classes[label]
        line = Answer(self.pool.names[image], answer, self.question.why_asked, self.question.probability, now())
        self.file.append(line)
        self.lines.append(line)
        self._judge()
        return True

    def undo(self) -> bool:
        """Take the last answer back, so that its question waits again. Return False if there is none."""
        if not self._asked():
            return False
        line = self._asked()[-1]
        self.file.append(Answer(line.image, "", UNDO, None, now()))
        self.lines = read_answers(self.file.path).lines
        self._judge()
        return True

    def _asked(self) -> list[Answer]:
        """Return the answers to questions, without labels that existed already or are about other images."""
        return [line for line in self.lines if line.probability is not None and line.image in self.pool.place]

    def _judge(self) -> None:
        asked = [self.pool.place[line.image] for line in self.lines if line.image in self.pool.place]
        self.questions = self.order.next(asked, len(self._asked()))
        self.choice: Choice = judge(Evidence.read(self.pool, Answers(self.lines, self.notes)))

    @property
    def words(self) -> str:
        """Say what is known so far, and that nothing is left to ask."""
        left = "" if self.question else " Every image was asked about."
        return f"{self.choice.words}{left}"
