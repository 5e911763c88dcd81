"""Put pictures inside a page: many small images become one contact sheet, in a data URI."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sitar.reporting.pixels import rgb

BLOCK = 8  # JPEG compresses squares of this size: tiles end at their borders, so that none shines into the next
QUALITY = 85


@dataclass(frozen=True)
class ContactSheet:
    """A contact sheet has tiles in rows and columns.

    A tile takes `pitch` pixels, of which `size` (height, width) are the image.
    """

    uri: str
    rows: int
    columns: int
    size: tuple[int, int]
    pitch: tuple[int, int]


def contact_sheet(images: NDArray[np.uint8]) -> ContactSheet:
    """Put images (row, column, channel, height, width) into one JPEG."""
    rows, columns, _, height, width = images.shape
    tall, wide = (-(-side // BLOCK) * BLOCK for side in (height, width))
    canvas = np.zeros((rows * tall, columns * wide, 3), np.uint8)
    for i in range(rows):
        for j in range(columns):
            margins = ((0, tall - height), (0, wide - width), (0, 0))
            canvas[i * tall : (i + 1) * tall, j * wide : (j + 1) * wide] = np.pad(rgb(images[i, j]), margins, "edge")
    return ContactSheet(_jpeg(canvas), rows, columns, (height, width), (tall, wide))


def _jpeg(pixels: NDArray[np.uint8]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=QUALITY, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
