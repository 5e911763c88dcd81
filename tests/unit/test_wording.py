"""Numbers of things, as English writes them."""

from __future__ import annotations

import pytest

from sitar.wording import are, counted


@pytest.mark.parametrize(("n", "said"), [(0, "0 files are"), (1, "1 file is"), (1200, "1,200 files are")])
def test_the_plural_and_its_verb_follow_the_number(n: int, said: str) -> None:
    assert f"{counted(n, 'file')} {are(n)}" == said


def test_a_plural_may_be_made_otherwise() -> None:
    assert [counted(n, "axis", "axes") for n in (1, 2)] == ["1 axis", "2 axes"]
