"""Names that users give are shown as they are, and steer nothing."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from helpers.cli import sitar
from helpers.made_runs import make_run
from sitar.cli.compare import command
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


class Terminal(io.StringIO):
    """A standard output that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("options", [[], ["--csv"], ["--latex"]])
def test_a_preset_cannot_steer_the_terminal_and_a_file_has_it_as_it_is(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    settings = folder.read_config()
    folder.config_file.write_text(json.dumps({**settings, "preset": "\x1b[31mred\u202e"}))  # JSON is YAML
    shown, kept = Terminal(), io.StringIO()
    for stream in (shown, kept):
        monkeypatch.setattr("sys.stdout", stream)
        command([folder.path], as_csv="--csv" in options, as_latex="--latex" in options)
    assert "red" in shown.getvalue()
    assert not {"\x1b", "\u202e"} & set(_without_style(shown.getvalue()))
    assert ("\x1b" in kept.getvalue()) == bool(options)


def _without_style(text: str) -> str:
    """Leave out the style that our own tables have in a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m(?!red)", "", text)


def test_a_card_cannot_steer_the_terminal_in_which_push_shows_it(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", explained=False)
    card = tmp_path / "card.md"
    card.write_text("---\nname: \u202ered\x1b[31m\n---\n")
    folder.write_export("onnx", b"a model")
    shown = sitar("push", folder.path, "me/digits", "--card", card, "--only-exported").stdout
    assert r"name: \u202ered\x1b[31m" in shown
    assert not {"\x1b", "\u202e"} & set(shown)
