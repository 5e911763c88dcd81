"""Names of users are plain text in a card, whatever they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sitar.reporting.card.markdown import Markdown, escaped


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cat", "cat"),
        ("not_blond", "not_blond"),
        ("0.5", "0.5"),
        ("a|b", r"a\|b"),
        ("*bold*", r"\*bold\*"),
        ("_soft_", r"\_soft\_"),
        ("`code`", r"\`code\`"),
        ("[x](http://y)", r"\[x\](http\://y)"),
        ("www.y.org", r"www\.y.org"),
        ("<script>", "&lt;script&gt;"),
        ("R&D", "R&amp;D"),
        ("# title", r"\# title"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("$x$", r"\$x\$"),
        ("two\nlines", "two lines"),
        ("back\\slash", r"back\\slash"),
        ("a\x00b\u2028c", "a b c"),
        (3, "3"),
    ],
)
def test_names_are_plain_text(name: object, text: str) -> None:
    assert escaped(name) == text


def test_markdown_of_ours_stays() -> None:
    assert escaped(Markdown("**x**")) == "**x**"


@given(st.text())
def test_no_cell_is_broken(name: str) -> None:
    text = escaped(name)
    assert len(text.splitlines()) <= 1
    assert "<" not in text
    unescaped = text.replace("\\\\", "").replace("\\|", "")
    assert "|" not in unescaped
