"""Files that have lost a bit, as a disk or a copy may lose one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np


def flipped(content: bytes, bit: int) -> bytes:
    """Return content in which one bit is another."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def some_bits(content: bytes, most: int) -> list[int]:
    """Return places of bits: one in every byte of a small file, or as many at random, with the first and last byte."""
    if len(content) <= most:
        return [8 * byte + byte % 8 for byte in range(len(content))]
    drawn = np.random.default_rng(0).integers(0, 8 * len(content), most - 2).tolist()
    return [0, *drawn, 8 * len(content) - 1]


@contextmanager
def damaged(file: Path, bit: int) -> Iterator[None]:
    """Flip one bit of a file, for a while."""
    sound = file.read_bytes()
    file.write_bytes(flipped(sound, bit))
    try:
        yield
    finally:
        file.write_bytes(sound)
