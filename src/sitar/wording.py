"""Write numbers of things as English does: 1 file is, 2 files are."""

from __future__ import annotations


def counted(n: int, one: str, many: str | None = None) -> str:
    """Write a number of things. `many` is their plural where it is not made by an s."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def are(n: int) -> str:
    """Return the verb that goes with a number of things."""
    return "is" if n == 1 else "are"
