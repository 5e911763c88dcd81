"""TIFF files of any number of channels, interleaved, planar or a page each (needs tifffile)."""

from __future__ import annotations

import io
import math

from PIL import Image

from sitar.errors import DataError
from sitar.images.bits import BadImageError, to_uint8

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the last two are BigTIFF


def is_tiff(data: bytes) -> bool:
    return data.startswith(MAGIC)


def read_stack(data: bytes, channels: int, max_pixels: int) -> list[Image.Image]:
    """A gray image for each channel. Of several series (a pyramid, a thumbnail) the first counts."""
    import numpy as np

    try:
        from tifffile import TiffFile
    except ImportError as error:
        raise DataError(
            "TIFF files with several pages, or with other than 1, 3 or 4 channels, need tifffile: "
            'pip install "sitar[medical]".'
        ) from error
    with TiffFile(io.BytesIO(data)) as file:
        series = file.series[0]
        others = [axis for axis, n in zip(series.axes, series.shape, strict=True) if axis not in "YX" and n > 1]
        if len(others) > 1:
            raise BadImageError(f"the axes {series.axes} {series.shape}, where height, width and channels are known")
        found = math.prod(n for axis, n in zip(series.axes, series.shape, strict=True) if axis not in "YX")
        if found != channels:
            raise BadImageError(f"{found} channels, not the {channels} of data.channels")
        if math.prod(series.shape) > max_pixels:
            raise BadImageError(f"{math.prod(series.shape):,} values are more than {max_pixels:,}")
        values = series.asarray()
    height, width = (series.axes.index(axis) for axis in "YX")
    planes = np.moveaxis(values, (height, width), (-2, -1)).reshape(-1, values.shape[height], values.shape[width])
    return [Image.fromarray(to_uint8(plane)) for plane in planes]
