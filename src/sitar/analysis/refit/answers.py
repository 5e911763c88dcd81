"""Read the answers of a person, or labels that exist already, from a CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sitar.data.tables import open_table
from sitar.errors import DataError


@dataclass(frozen=True)
class Answer:
    """An answer says which class an image has, and how likely the image was to be asked about."""

    image: str
    answer: str
    probability: float | None = None


def read_answers(path: Path) -> list[Answer]:
    """Read the columns image and answer (or label), and probability if there is one.

    The last answer of an image counts. Skipped images have an empty answer, and are left out. So are answers that a
    later line, `undo`, takes back.
    """
    if not path.is_file():
        raise DataError(f"There is no file of answers {str(path)!r}.")
    table = open_table(path)
    said = "label" if "label" in table.names and "answer" not in table.names else "answer"
    table.check_columns(["image", said])
    images, words = table.words("image"), [word.strip() for word in table.words(said)]
    chances = table.numbers("probability").tolist() if "probability" in table.names else [None] * len(images)
    reasons = table.words("why_asked") if "why_asked" in table.names else [""] * len(images)
    answers: dict[str, Answer] = {}
    for image, word, chance, why in zip(images, words, chances, reasons, strict=True):
        if why == "undo":
            answers.pop(image, None)
        elif word:
            answers[image] = Answer(image, word, chance if chance is not None and chance > 0 else None)
    return list(answers.values())
