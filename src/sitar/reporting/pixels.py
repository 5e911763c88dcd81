"""Show arrays of pixels in colour, under a saliency map, or with a frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def rgb(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return (height, width, 3). One channel is grey, two are red and green, of more the first three are shown."""
    if len(image) == 1:
        image = image.repeat(3, axis=0)
    if len(image) == 2:
        image = np.concatenate([image, np.zeros_like(image[:1])])
    return image[:3].transpose(1, 2, 0)


def under_map(image: NDArray[np.uint8], saliency: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Lay a map of [0, 1] over an image (channel, height, width): orange where it is high, dimmed where it is low."""
    grey = rgb(image).astype(np.float32).mean(2, keepdims=True).repeat(3, axis=2)
    strength = np.clip(saliency, 0, 1)[..., None]
    orange = np.array([255.0, 140.0, 20.0], np.float32)
    mixed = (1 - 0.75 * strength) * (0.55 * grey + 40) + 0.75 * strength * orange
    return mixed.clip(0, 255).astype(np.uint8).transpose(2, 0, 1)


def framed(image: NDArray[np.uint8], box: Sequence[float]) -> NDArray[np.uint8]:
    """Draw a white frame, one pixel wide, into an image (channel, height, width).

    The box is left, top, right and bottom as fractions.
    """
    height, width = image.shape[1:]
    left, right = (min(round(end * width), width - 1) for end in box[::2])
    top, bottom = (min(round(end * height), height - 1) for end in box[1::2])
    image = image.copy()
    image[:, [top, bottom], left : right + 1] = 255
    image[:, top : bottom + 1, [left, right]] = 255
    return image
