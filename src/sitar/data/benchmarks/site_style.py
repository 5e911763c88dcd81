"""What a site does to every image it takes: colour, brightness, sharpness and compression, never its content."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Mix = tuple[float, float, float]  # of red, green and blue


@dataclass(frozen=True)
class SiteStyle:
    """What a site does to its images: the same to all of them, and nothing random.

    In this order: `matrix` mixes the channels of pixels in [0, 1] (a row for each of red, green and blue), `gamma` is
    the power they are raised to, `blur` a Gaussian's standard deviation in percent of the image's height, `quality`
    that of a JPEG file it is written to and read from.
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
