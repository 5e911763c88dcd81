"""A site changes every image that it takes: colour, brightness, sharpness and compression, never the content."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Mix = tuple[float, float, float]  # of red, green and blue


@dataclass(frozen=True)
class SiteStyle:
    """A site's style changes all its images in the same way, and nothing in it is random.

    Its steps come in this order. `matrix` mixes the channels of pixels in [0, 1], with a row for each of red, green and
    blue. `gamma` is the power that they are raised to. `blur` is a Gaussian's standard deviation in percent of the
    image's height. `quality` is that of a JPEG file, which the image is written to and read from.
    """

    matrix: tuple[Mix, Mix, Mix]
    gamma: float
    blur: float
    quality: int

    def apply(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return an image (3, height, width) as this site would have taken it."""
        pixels = image.transpose(1, 2, 0).astype(np.float32) / 255
        mixed = (pixels @ np.array(self.matrix, dtype=np.float32).T).clip(0, 1)
        picture = Image.fromarray((255 * mixed**self.gamma).round().astype(np.uint8))
        file = io.BytesIO()
        radius = self.blur / 100 * picture.height
        picture.filter(ImageFilter.GaussianBlur(radius)).save(file, "JPEG", quality=self.quality)
        return np.asarray(Image.open(file, formats=["JPEG"])).transpose(2, 0, 1)
