"""The bytes of an image file become uint8 pixels of one size.

NumPy is imported only where Pillow cannot help: for ordinary images, processes that decode start in half the time
without it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image, ImageOps, UnidentifiedImageError

from sitar.errors import SitarError
from sitar.images.bit_depth import NARROW, BadImageError, narrow_range, to_eight_bits
from sitar.images.dicom import is_dicom, read_dicom
from sitar.images.files import PILLOW_FORMATS
from sitar.images.jpeg import MOST_JPEG2000, check_scans
from sitar.images.tiff import ORIENTATION, PREMULTIPLIED, WHITE_IS_ZERO, is_tiff, read_stack

BITS, PHOTOMETRIC, PLANAR, EXTRA_SAMPLES = 258, 262, 284, 338  # tags of TIFF
STRIP = 2**22  # pixels with alpha that are worked on at a time
MAX_PIXELS = 100_000_000  # of a file, before it is decoded: more is a mistake or an attack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def decode(data: bytes, size: tuple[int, int], crop_pct: float | None = None, channels: int = 3) -> NDArray[np.uint8]:
    """Return the pixels (channels, height, width) of an image file, as `decode_bytes` makes them."""
    import numpy as np

    return np.frombuffer(decode_bytes(data, size, crop_pct, channels).values, np.uint8).reshape(channels, *size)


class Pixels(NamedTuple):
    """Holds the pixels of an image, one channel after the other, and says where its file uses little of its range."""

    values: bytes
    narrow: str | None = None


def decode_bytes(data: bytes, size: tuple[int, int], crop_pct: float | None = None, channels: int = 3) -> Pixels:
    """Return the pixels of an image file, turned upright and resized, one channel after the other.

    Three channels are RGB and one is gray, whatever the file has. Any other number must be that of the file. Without
    `crop_pct` the whole image is stretched to `size`. With it the aspect ratio is kept: the sides are scaled until
    they cover `size / crop_pct`, and the centre is cut out.
    """
    if not data:
        raise BadImageError("the file is empty")
    with _reason_said():
        planes = _planes(data, channels)
        narrow = [plane.info.get(NARROW) for plane in planes]
        return Pixels(_fitted(planes, size, crop_pct), None if None in narrow else narrow[0])


def decode_image(
    image: Image.Image, size: tuple[int, int], crop_pct: float | None = None, channels: int = 3
) -> NDArray[np.uint8]:
    """Return the pixels (channels, height, width) of an image of Pillow, as `decode` returns those of its file."""
    import numpy as np

    with _reason_said():
        pixels = _fitted(_with_channels(_upright(image), channels), size, crop_pct)
    return np.frombuffer(pixels, np.uint8).reshape(channels, *size)


def upright(data: bytes) -> Image.Image:
    """Return an image file as RGB, turned upright and in its own size, for a person to look at."""
    with _reason_said():
        planes = _planes(data, 3)
        return planes[0].copy() if len(planes) == 1 else Image.merge("RGB", planes)  # either reads all of it


@contextmanager
def _reason_said() -> Iterator[None]:
    """Say in one sentence why an image cannot be used."""
    try:
        yield
    except (BadImageError, SitarError):
        raise
    except UnidentifiedImageError as error:
        raise BadImageError("no image, or of a kind that is not known") from error
    except Exception as error:  # what Pillow and others raise for a damaged file is not specified
        raise BadImageError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def _planes(data: bytes, channels: int) -> list[Image.Image]:
    """Return images that together have the channels: one image of all of them, or one each."""
    if is_dicom(data):
        image = read_dicom(data, MAX_PIXELS)
    elif is_tiff(data) and (channels not in (1, 3) or not _is_photo(data)):
        planes = read_stack(data, channels, MAX_PIXELS)
        if len(planes) > 1:
            return planes
        image = planes[0]
    else:
        image = _upright(_open(data))
    return _with_channels(image, channels)


def _with_channels(image: Image.Image, channels: int) -> list[Image.Image]:
    if channels == 3:
        return [to_rgb(image)]
    if channels == 1:
        return [to_rgb(image).convert("L")]
    if len(image.getbands()) != channels:
        raise BadImageError(f"{len(image.getbands())} channels, not the {channels} of data.channels")
    return list(image.split())


def _upright(image: Image.Image) -> Image.Image:
    most = min(MAX_PIXELS, MOST_JPEG2000) if image.format == "JPEG2000" else MAX_PIXELS
    if image.width * image.height > most:
        raise BadImageError(f"{image.width}x{image.height} pixels are more than {most:,}")
    if image.format == "JPEG" and not image.info.keys() & {"exif", "xmp"}:
        return image  # nothing says how it was held; asking takes time
    if image.getexif().get(ORIENTATION, 1) != 1:
        return ImageOps.exif_transpose(image)  # copies, so only where it must
    return image


def _open(data: bytes) -> Image.Image:
    Image.preinit()  # the common kinds: all plugins of Pillow are imported only for a file that is none of them
    image = Image.open(io.BytesIO(data), formats=PILLOW_FORMATS)
    if image.format in ("JPEG", "MPO"):
        check_scans(data)
    return image


def _is_photo(data: bytes) -> bool:
    """Return whether Pillow reads all of a TIFF file correctly: one page of at most four channels."""
    try:
        with _open(data) as image:
            return _has_one_page(image) and not _is_misread(image)
    except UnidentifiedImageError:
        return False


def _has_one_page(image: Image.Image) -> bool:
    """Return whether a TIFF file has no second page. Pillow would read all pages to count them."""
    try:
        image.seek(1)
    except EOFError:
        return True
    finally:
        image.seek(0)
    return False


def _is_misread(image: Any) -> bool:
    """Return whether Pillow (13.0) opens a TIFF file and gets its pixels wrong, in silence or not."""
    tags = image.tag_v2
    is_raw, is_deep = image.info["compression"] == "raw", max(tags.get(BITS, (1,))) > 8
    if is_deep and tags.get(PHOTOMETRIC, WHITE_IS_ZERO) == WHITE_IS_ZERO:
        return True  # not inverted
    if is_raw:  # planes are taken for plain ones of eight bits
        is_plain = not is_deep and len(image.getbands()) > 1 and tags.get(EXTRA_SAMPLES) != PREMULTIPLIED
        return tags.get(PLANAR) == 2 and not is_plain
    return image.mode in ("I", "F") and tags.prefix == b"MM"  # the order of bytes is changed twice


def _fitted(planes: list[Image.Image], size: tuple[int, int], crop_pct: float | None) -> bytes:
    fitted = [_stretched(p, size) if crop_pct is None else _cropped(p, size, crop_pct) for p in planes]
    return b"".join([channel for plane in fitted for channel in _channels(plane)])


def _channels(image: Image.Image) -> list[bytes]:
    pixels, n = image.tobytes(), len(image.getbands())
    return [pixels] if n == 1 else [pixels[channel::n] for channel in range(n)]


def _stretched(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image.resize((size[1], size[0]), Image.Resampling.BILINEAR)


def _cropped(image: Image.Image, size: tuple[int, int], crop_pct: float) -> Image.Image:
    """Cut out the centre of the image, at the scale at which it just covers `size / crop_pct`."""
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
    """Return three channels of eight bits each. Alpha lies over black; more bits are scaled as `to_eight_bits` does."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode[0] in "IF":  # sixteen and thirty-two bits, which Pillow would cut off at 255
        import numpy as np

        values = np.asarray(image)
        rgb = Image.fromarray(to_eight_bits(values)).convert("RGB")
        rgb.info[NARROW] = narrow_range(values)
        return rgb
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        return _over_black(image)
    return image.convert("RGB")


def _over_black(image: Image.Image) -> Image.Image:
    """Lay an image with alpha over black, strip by strip: as a whole, it would be in memory four times."""
    shown, rows = Image.new("RGB", image.size), max(1, STRIP // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        strip.info = image.info  # which says what is transparent
        rgba = strip.convert("RGBA")
        black = Image.new("RGBA", rgba.size, (0, 0, 0, 255))
        shown.paste(Image.alpha_composite(black, rgba).convert("RGB"), (0, top))
    return shown
