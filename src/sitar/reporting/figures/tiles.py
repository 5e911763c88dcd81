"""Draw images in a grid, and write words as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sitar.reporting.pixels import rgb

GAP = 0.06  # between images, of their width
WORD = 16  # letters of a class's name that have room


def tiles(plot: Axes, images: NDArray[np.uint8], rows: Sequence[str], marks: Sequence[str]) -> None:
    """Draw images (row, column, channel, height, width) in a grid, each one unit wide and high."""
    for i, line in enumerate(images):
        for j, image in enumerate(line):
            tile(plot, rgb(image), i, j)
    plot.set(xlim=(0, images.shape[1]), ylim=(len(images), 0))
    plot.set_yticks([i + 0.5 for i in range(len(rows))], list(rows), fontsize=8)
    plot.set_xticks([j + 0.5 for j in range(len(marks))], list(marks), fontsize=7)
    plot.tick_params(length=0)
    plot.spines[:].set_visible(False)


def tile(plot: Axes, image: NDArray[np.generic], row: int, column: int) -> None:
    """Draw one image (height, width, colour) at its place in a grid."""
    extent = (column + GAP / 2, column + 1 - GAP / 2, row + 1 - GAP / 2, row + GAP / 2)
    plot.imshow(image, extent=extent, aspect="auto", interpolation="nearest", vmin=0, vmax=255)


def fractions(size: tuple[float, float, float, float], figure: Figure) -> tuple[float, float, float, float]:
    """Turn inches (from the left, from the top, width, height) into fractions (left, bottom, width, height)."""
    left, top, width, height = size
    whole_width, whole_height = figure.get_size_inches()
    return left / whole_width, 1 - (top + height) / whole_height, width / whole_width, height / whole_height


def short(word: str, most: int = WORD) -> str:
    """Cut a word that has no room."""
    return plain(word if len(word) <= most else f"{word[: most - 1]}…")


def plain(text: str) -> str:
    """Escape text so that matplotlib shows it as it is. It would read what is between two dollars as a formula."""
    return text.replace("$", r"\$")
