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


def decode(data: bytes, size: tuple[int, int], crop_pct: float | None = None) -> NDArray[np.uint8]:
    """RGB pixels (3, height, width) of an image file, turned upright and resized.

    Without `crop_pct` the whole image is stretched to `size`. With it the aspect ratio is kept: the sides are scaled
    until they cover `size / crop_pct`, and the centre is cut out.
    """
    if not data:
        raise BadImageError("the file is empty")
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise BadImageError(f"{image.width}x{image.height} pixels are more than {MAX_PIXELS:,}")
            if image.getexif().get(ORIENTATION, 1) != 1:
                image = ImageOps.exif_transpose(image)  # noqa: PLW2901  (copies, so only where it must)
            rgb = to_rgb(image)
            fitted = _stretched(rgb, size) if crop_pct is None else _cropped(rgb, size, crop_pct)
            return np.asarray(fitted).transpose(2, 0, 1)
    except BadImageError:
        raise
    except Exception as error:  # what Pillow raises for a damaged file is not specified
        raise BadImageError(f"{type(error).__name__}: {error}") from error


def _stretched(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image.resize((size[1], size[0]), Image.Resampling.BILINEAR)


def _cropped(image: Image.Image, size: tuple[int, int], crop_pct: float) -> Image.Image:
    """The centre of the image at the scale at which it just covers `size / crop_pct`."""
    height, width = (round(side / crop_pct) for side in size)
    if image.width * height > image.height * width:
        width = image.width * height // image.height
    else:
        height = image.height * width // image.width
    if width * height > MAX_PIXELS:
        raise BadImageError(f"{image.width}x{image.height} is too long and thin to keep its aspect ratio")
    left, top = round((width - size[1]) / 2), round((height - size[0]) / 2)
    return _stretched(image, (height, width)).crop((left, top, left + size[1], top + size[0]))


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
