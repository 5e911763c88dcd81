"""Names that users give are shown as they are, and steer nothing."""

from __future__ import annotations

import pytest

from sitar.cli.output import print_table, printable, say
from sitar.reporting.tables.table import Table


def test_a_name_in_brackets_is_shown_and_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["[benign]", "[/x]", "[red]malignant[/red]", ":smile:"]
    print_table(Table("[bold]title", ["[column]", "n"], [[name, "1"] for name in names], "note [b]"))
    shown = capsys.readouterr().out
    for text in (*names, "[bold]title", "[column]", "note [b]"):
        assert text in shown


def test_a_name_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    steering = "\x1b[2J\x1b]0;title\x07class\r\x9b31m\u202e"
    print_table(Table("t", ["name"], [[steering]]))
    say(steering)
    shown = capsys.readouterr().out
    assert not set(shown) & {"\x1b", "\x07", "\r", "\x9b", "\u202e"}
    assert r"\x1b[2J" in shown


def test_words_of_every_language_are_shown() -> None:
    text = "Größe, 良性, зло, naïve – “x”\nnext\tline"
    assert printable(text) == text
