"""A terminal asks the questions where there is no browser. It names the file of each image, for a viewer beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from sitar.analysis.ask.pictures import picture
from sitar.analysis.ask.session import Session, keys_of
from sitar.files import write_atomic


def ask_in_terminal(session: Session, lines: Iterable[str], say: Callable[[str], None]) -> None:
    """Ask until the lines end, one is `q`, or every image was asked about. What is no answer is asked again."""
    classes = session.pool.classes
    keys = keys_of(classes)
    shown = "  ".join(f"{key or name}: {name}" for key, name in zip(keys, classes, strict=True))
    given = iter(lines)
    while session.question is not None:
        image = session.question.image
        say(f"\n{session.words}\n{_where(session, image)}\n{shown}  (s: skip, u: undo, q: quit)")
        word = next(given, "q").strip()
        if word == "q":
            return
        if word == "u":
            if not session.undo():
                say("There is no answer to take back.")
        elif word == "s":
            session.answer(image, None)
        elif (label := _label(word, keys, classes)) is not None:
            session.answer(image, label)
        else:
            say(f"{word!r} is no class. Type the key or the name of one of: {', '.join(classes)}.")
    say(session.words)


def _label(word: str, keys: list[str], classes: tuple[str, ...]) -> int | None:
    """Return the number of a class by its key or its name."""
    if word and word.lower() in keys:
        return keys.index(word.lower())
    return classes.index(word) if word in classes else None


def _where(session: Session, image: int) -> str:
    """Return the file of an image. One that lies in an array is written beside the answers."""
    if session.pool.files is not None:
        return str(session.pool.files[image])
    path: Path = session.file.path.with_suffix(".png")
    write_atomic(path, picture(session.pool, image))
    return f"{path} (row {session.pool.names[image]})"
