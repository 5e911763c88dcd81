"""TIFF files may have any number of channels, interleaved, planar or a page each (needs tifffile)."""

from __future__ import annotations

import io
import math
from typing import Any

from PIL import Image, ImageOps

from sitar.errors import DataError
from sitar.images.bit_depth import NARROW, BadImageError, narrow_range, to_eight_bits

MOST_PAGES = 4096  # a damaged file of 300 bytes can say that it has millions
MOST_STRIPS = 2**22  # of all pages: thousands of pages can name the same million places
DESCRIBED = (  # what tifffile believes a text in the file about, be it a size of millions or pages that are not there
    "lsm", "mmstack", "ome", "ndtiff", "fluoview", "stk", "sis", "svs", "scn", "qpi", "ndpi", "bif", "avs", "eer",
    "philips", "scanimage", "nih", "mdgel", "indica",
)  # fmt: skip
MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the last two are BigTIFF
ORIENTATION = 0x0112  # how the camera was held
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, CMYK = 0, 1, 2, 5  # photometric interpretations
UNKNOWN, PREMULTIPLIED, ALPHA = (0,), (1,), (2,)  # extra samples
MODES = {  # over black, colours that alpha has been multiplied into are those that are seen
    (WHITE_IS_ZERO, ()): "L", (WHITE_IS_ZERO, ALPHA): "LA", (BLACK_IS_ZERO, ()): "L", (BLACK_IS_ZERO, ALPHA): "LA",
    (RGB, ()): "RGB", (RGB, UNKNOWN): "RGB", (RGB, PREMULTIPLIED): "RGB", (RGB, ALPHA): "RGBA", (CMYK, ()): "CMYK",
}  # fmt: skip


def is_tiff(data: bytes) -> bool:
    return data.startswith(MAGIC)


def read_stack(data: bytes, channels: int, max_pixels: int) -> list[Image.Image]:
    """Return a gray image for each channel, turned upright. Of several series (a pyramid, thumbnails) the first counts.

    Where RGB (3) or gray (1) is asked for, a page that says what its channels are is one image of all of them. What
    counts are the pages that are there. Of texts that describe them, only those of ImageJ and of tifffile are read.
    """
    import numpy as np

    try:
        from tifffile import TiffFile
    except ImportError as error:
        raise DataError(
            "TIFF files with several pages, with other than 1, 3 or 4 channels, or of a kind that Pillow misreads, "
            'need tifffile: pip install "sitar[medical]".'
        ) from error
    plain = type("Plain", (TiffFile,), {f"is_{kind}": False for kind in DESCRIBED})  # not all of them are arguments
    with plain(io.BytesIO(data)) as file:
        _check_pages(file)
        series = file.series[0]
        if None in series.pages:  # which would be black
            raise BadImageError("pages that are missing: do they lie in another file?")
        page = series.keyframe
        others = [axis for axis, n in zip(series.axes, series.shape, strict=True) if axis not in "YX" and n > 1]
        if len(others) > 1:
            raise BadImageError(f"the axes {series.axes} {series.shape}, where height, width and channels are known")
        present = math.prod(n for axis, n in zip(series.axes, series.shape, strict=True) if axis not in "YX")
        is_page = present == page.samplesperpixel and channels in (1, 3)
        mode = MODES.get((page.photometric, page.extrasamples)) if is_page else None
        if present != channels and mode is None:
            raise BadImageError(f"{present} channels, not the {channels} of data.channels")
        if math.prod(series.shape) > max_pixels:
            raise BadImageError(f"{math.prod(series.shape):,} values are more than {max_pixels:,}")
        values = series.asarray()
        if values.shape != series.shape:
            raise BadImageError(f"{values.shape} values, where a text in the file describes {series.shape}")
        orientation = page.tags.valueof(ORIENTATION, 1)
    height, width = (series.axes.index(axis) for axis in "YX")
    planes = np.moveaxis(values, (height, width), (-2, -1)).reshape(-1, values.shape[height], values.shape[width])
    narrow, eight = [narrow_range(plane) for plane in planes], [to_eight_bits(plane) for plane in planes]
    if page.photometric == WHITE_IS_ZERO:  # which speaks of the first sample of a page
        eight = [255 - plane if i % page.samplesperpixel == 0 else plane for i, plane in enumerate(eight)]
    images = [_turned(Image.fromarray(plane), orientation) for plane in eight]
    images = images if mode is None else [Image.merge(mode, images[: len(mode)])]
    for image in images:
        image.info[NARROW] = None if None in narrow else narrow[0]
    return images


def _check_pages(file: Any) -> None:
    """Refuse more pages, or strips of them, than a real file has. A page within a page counts as one."""
    pages = strips = 0
    for page in file.pages:
        pages += 1 + len(page.subifds or ())
        strips += len(page.dataoffsets)
        if pages > MOST_PAGES:
            raise BadImageError(f"more than {MOST_PAGES:,} pages")
        if strips > MOST_STRIPS:
            raise BadImageError(f"more than {MOST_STRIPS:,} strips")


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    image.getexif()[ORIENTATION] = orientation
    return ImageOps.exif_transpose(image)
