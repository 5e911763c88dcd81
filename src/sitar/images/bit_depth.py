"""Values of any width become eight bits, by a rule that does not depend on the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class BadImageError(ValueError):
    """Says why an image file cannot be used."""


def to_eight_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return values as eight bits: sixteen bits are divided by their largest possible value, floats lie in [0, 1].

    Pillow sometimes gives sixteen bits as 32-bit integers. These count as sixteen bits where they fit.
    """
    import numpy as np

    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * 255
    low, high = values.min(initial=0), values.max(initial=0)
    if values.dtype.kind == "f":
        if not (low >= 0 and high <= 1):
            raise BadImageError(f"floats from {low:g} to {high:g}, where they must lie in [0, 1]")
        return np.rint(values * 255).astype(np.uint8)
    if low < 0 or high > 65535:
        raise BadImageError(f"values from {low} to {high}, where at most sixteen bits without a sign are known")
    return np.rint(values.astype(np.float32) / 257).astype(np.uint8)
