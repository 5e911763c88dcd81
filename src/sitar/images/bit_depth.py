"""Values of any width become eight bits, by a rule that does not depend on the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NARROW = "narrow"  # in the `info` of an image of Pillow: what `narrow_range` says of its file
LEAST_USED = 0.1  # of what the values could be: less leaves an eight-bit image a few shades
STRIP = 2**20  # values that are worked on at a time: as a whole, an image would be in memory several times


class BadImageError(ValueError):
    """Says why an image file cannot be used."""


def narrow_range(values: NDArray[Any]) -> str | None:
    """Say in words that values use little of what they could. None: they use enough, have eight bits, or are all one.

    Of what is all one value, no scale would show more.
    """
    if not values.size or values.dtype.kind not in "iuf" or values.dtype.itemsize == 1:
        return None
    low, high, most = values.min(), values.max(), 1 if values.dtype.kind == "f" else 65535
    return f"values from {low:g} to {high:g} of {most:,}" if 0 < high - low < LEAST_USED * most else None


def to_eight_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return values as eight bits: sixteen bits are divided by their largest possible value, floats lie in [0, 1].

    Pillow sometimes gives sixteen bits as 32-bit integers. These count as sixteen bits where they fit.
    """
    import numpy as np

    if values.dtype == np.uint8:
        return values
    low, high = (0, 1) if values.dtype.kind == "b" else (values.min(initial=0), values.max(initial=0))
    if values.dtype.kind == "f":
        if not (low >= 0 and high <= 1):
            raise BadImageError(f"floats from {low:g} to {high:g}, where they must lie in [0, 1]")
    elif low < 0 or high > 65535:
        raise BadImageError(f"values from {low} to {high}, where at most sixteen bits without a sign are known")
    eight = np.empty(values.shape, np.uint8)
    flags = ["external_loop", "buffered", "zerosize_ok"]
    with np.nditer([values, eight], flags, [["readonly"], ["writeonly"]], buffersize=STRIP) as strips:  # pyright: ignore
        for strip, result in strips:
            if values.dtype.kind in "bf":
                result[...] = np.rint(strip * 255)
            else:
                result[...] = np.rint(strip.astype(np.float32) / 257)
    return eight
