"""What a message takes over from an error of another library."""

from __future__ import annotations

import pytest

from sitar.errors import first_line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such axis."), "no such axis"),
        (ValueError("\n first\nsecond"), "first"),
        (KeyError(), "KeyError"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_the_first_line_without_its_full_stop(error: Exception, said: str) -> None:
    assert first_line(error) == said
