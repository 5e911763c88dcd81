"""Pictures inside a page: many small images as one sheet, in a data URI."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BLOCK = 8  # JPEG compresses squares of this size: tiles end at their borders, so that none shines into the next
QUALITY = 85


@dataclass(frozen=True)
class Sheet:
    """Tiles in rows and columns. A tile takes `pitch` pixels, of which `size` (height, width) are the image."""

    uri: str
    rows: int
    columns: int
    size: tuple[int, int]
    pitch: tuple[int, int]


def sheet(images: NDArray[np.uint8]) -> Sheet:
    """Images (row, column, channel, height, width) as one JPEG."""
    rows, columns, _, height, width = images.shape
    tall, wide = (-(-side // BLOCK) * BLOCK for side in (height, width))
    canvas = np.zeros((rows * tall, columns * wide, 3), np.uint8)
    for i in range(rows):
        for j in range(columns):
            margins = ((0, tall - height), (0, wide - width), (0, 0))
            canvas[i * tall : (i + 1) * tall, j * wide : (j + 1) * wide] = np.pad(rgb(images[i, j]), margins, "edge")
    return Sheet(_jpeg(canvas), rows, columns, (height, width), (tall, wide))


def rgb(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(height, width, 3): one channel is grey, two are red and green, of more the first three are shown."""
    if len(image) == 1:
        image = image.repeat(3, axis=0)
    if len(image) == 2:
        image = np.concatenate([image, np.zeros_like(image[:1])])
    return image[:3].transpose(1, 2, 0)


def heated(image: NDArray[np.uint8], heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """An image (channel, height, width) under a map of [0, 1]: dimmed where it is cold, orange where it is hot."""
    grey = rgb(image).astype(np.float32).mean(2, keepdims=True).repeat(3, axis=2)
    strength = np.clip(heat, 0, 1)[..., None]
    hot = np.array([255.0, 140.0, 20.0], np.float32)
    mixed = (1 - 0.75 * strength) * (0.55 * grey + 40) + 0.75 * strength * hot
    return mixed.clip(0, 255).astype(np.uint8).transpose(2, 0, 1)


def framed(image: NDArray[np.uint8], box: Sequence[float]) -> NDArray[np.uint8]:
    """An image (channel, height, width) with a white frame, one pixel wide; left, top, right, bottom as fractions."""
    height, width = image.shape[1:]
    left, right = (min(round(end * width), width - 1) for end in box[::2])
    top, bottom = (min(round(end * height), height - 1) for end in box[1::2])
    image = image.copy()
    image[:, [top, bottom], left : right + 1] = 255
    image[:, top : bottom + 1, [left, right]] = 255
    return image


def _jpeg(pixels: NDArray[np.uint8]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=QUALITY, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
