"""From the bytes of an image file to uint8 pixels of one size."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

ORIENTATION = 0x0112  # EXIF: how the camera was held
MAX_PIXELS = 100_000_000  # of a file, before it is decoded: more is a mistake or an attack


class BadImageError(ValueError):
    """An image file that cannot be used; the message says why."""


def decode(data: bytes, size: tuple[int, int]) -> NDArray[np.uint8]:
    """RGB pixels (3, height, width) of an image file, turned upright and resized, aspect ratio not kept."""
    if not data:
        raise BadImageError("the file is empty")
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BadImageError(f"{image.width}x{image.height} pixels are more than {MAX_PIXELS:,}")
            if image.getexif().get(ORIENTATION, 1) != 1:
                image = ImageOps.exif_transpose(image)  # noqa: PLW2901  (copies, so only where it must)
            rgb = to_rgb(image)
            return np.asarray(rgb.resize((size[1], size[0]), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    except BadImageError:
        raise
    except Exception as error:  # what Pillow raises for a damaged file is not specified
        raise BadImageError(f"{type(error).__name__}: {error}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Eight bits a channel, three channels: alpha over black, sixteen bits scaled by their largest possible value."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode in ("I;16", "I;16L", "I;16B", "I;16N"):
        return Image.fromarray((np.asarray(image).astype(np.float32) / 257).round().astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        black = Image.new("RGBA", rgba.size, (0, 0, 0, 255))
        return Image.alpha_composite(black, rgba).convert("RGB")
    return image.convert("RGB")
