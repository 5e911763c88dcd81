"""DICOM files are read as a viewer shows them, in eight bits: rescaled, and through their window (needs pydicom)."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zlib
from contextlib import suppress
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from PIL import Image, UnidentifiedImageError

from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError, to_eight_bits
from sitar.images.jpeg import MOST_JPEG2000, check_scans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WINDOW = ("WindowCenter", "WindowWidth")
DEFLATED = "1.2.840.10008.1.2.1.99"  # the transfer syntax of a data set that is compressed as a whole
MOST_UNPACKED = 2**29  # bytes: 100 megapixels of sixteen bits, twice over
STRIP = 2**21  # pixels that are shown at a time: pydicom computes in float64, with several copies


def is_dicom(data: bytes) -> bool:
    """Return whether a file is DICOM, whatever it is called."""
    return data[128:132] == b"DICM"


def read_dicom(data: bytes, max_pixels: int) -> Image.Image:
    """Read a gray or RGB image, in the file's first window, or from its darkest to its brightest value."""
    try:
        from pydicom import dcmread
        from pydicom.pixels.processing import apply_color_lut
        from pydicom.pixels.utils import pixel_array
    except ImportError as error:
        raise DataError('DICOM files need pydicom: pip install "sitar[medical]".') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that break the standard and can be read all the same
        _check_deflated(data)
        file = dcmread(io.BytesIO(data))
        if "PixelData" not in file:
            raise BadImageError("a DICOM file without an image")
        if (frames := int(file.get("NumberOfFrames") or 1)) > 1:
            raise BadImageError(f"a DICOM file of {frames} frames: save each as a file of its own")
        if file.Rows * file.Columns > max_pixels:
            raise BadImageError(f"{file.Columns}x{file.Rows} pixels are more than {max_pixels:,}")
        _check_packed(file)
        pixels = pixel_array(file)  # colours as RGB, however they are stored
        kind = file.PhotometricInterpretation
        if kind == "PALETTE COLOR":
            return Image.fromarray(to_eight_bits(apply_color_lut(pixels, file)))
        if pixels.ndim == 3:
            return Image.fromarray(to_eight_bits(pixels))
        gray = _shown(pixels, file)
    return Image.fromarray(255 - gray if kind == "MONOCHROME1" else gray)


def _check_deflated(data: bytes) -> None:
    """Refuse a file whose data set is compressed as a whole and unpacks to too much: pydicom would unpack all of it."""
    from pydicom.filereader import read_dataset, read_preamble

    file = io.BytesIO(data)
    read_preamble(file, force=False)
    head = read_dataset(file, False, True, stop_when=lambda tag, kind, length: tag.group != 2)  # as pydicom finds it
    if head.get("TransferSyntaxUID") != DEFLATED:
        return
    unpacked = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        size = len(unpacked.decompress(data[file.tell() :], MOST_UNPACKED + 1))
    except zlib.error as error:
        raise BadImageError(f"a compressed DICOM file that is damaged: {error}") from error
    if size > MOST_UNPACKED:
        raise BadImageError(f"a compressed DICOM file that unpacks to more than {MOST_UNPACKED:,} bytes")


def _check_packed(file: Any) -> None:
    """Refuse a packed image that would take far more than the head of the file says, or another one than it says."""
    from pydicom.uid import RLELossless

    if not file.file_meta.TransferSyntaxUID.is_encapsulated:
        return
    pixels = file.Rows * file.Columns
    size = pixels * file.SamplesPerPixel * file.BitsAllocated // 8
    if size > MOST_UNPACKED:
        raise BadImageError(f"a compressed DICOM file that unpacks to more than {MOST_UNPACKED:,} bytes")
    frame = _frame(file)
    if file.file_meta.TransferSyntaxUID == RLELossless:
        _check_rle(frame, pixels, size)
        return
    check_scans(frame)
    with suppress(UnidentifiedImageError), Image.open(io.BytesIO(frame), formats=("JPEG", "JPEG2000")) as image:
        if image.size != (file.Columns, file.Rows):
            raise BadImageError(f"a DICOM file of {file.Columns}x{file.Rows} pixels that holds others: {image.size}")
        if image.format == "JPEG2000" and pixels > MOST_JPEG2000:
            raise BadImageError(f"{file.Columns}x{file.Rows} pixels are more than {MOST_JPEG2000:,}")


def _frame(file: Any) -> bytes:
    """Return the packed image as pydicom finds it. It would also unpack others that the head does not count."""
    from pydicom.encaps import generate_frames

    table = (file.get("ExtendedOffsetTable"), file.get("ExtendedOffsetTableLengths"))
    offsets = table if all(table) and len(table[0]) == len(table[1]) else None
    frames = list(islice(generate_frames(file.PixelData, number_of_frames=1, extended_offsets=offsets), 2))
    if len(frames) != 1:
        raise BadImageError("a DICOM file that does not hold one frame, as it says")
    return frames[0]


def _check_rle(frame: bytes, pixels: int, size: int) -> None:
    """Refuse run lengths that are longer than the image, packed or unpacked. At worst they grow by a 128th of it."""
    is_longer = len(frame) > 2 * size + 4096
    if not is_longer and 64 * len(frame) > MOST_UNPACKED:  # two bytes may become 128
        starts = struct.unpack_from(f"<{min(frame[0], 15)}L", frame, 4)
        is_longer = any(_is_longer(frame[start:end], 2 * pixels) for start, end in pairwise((*starts, len(frame))))
    if is_longer:
        raise BadImageError("a DICOM file whose run lengths are longer than its image")


def _is_longer(segment: bytes, most: int) -> bool:
    """Return whether a segment of run lengths unpacks to more bytes."""
    place = unpacked = 0
    while place < len(segment) and unpacked <= most:
        head = segment[place]  # 128 stands for nothing
        unpacked += head + 1 if head < 128 else (257 - head) % 129
        place += head + 2 if head < 128 else 1 + (head > 128)
    return unpacked > most


def _shown(pixels: NDArray[Any], file: Any) -> NDArray[np.uint8]:
    """Bring stored values to 0 to 255: through the modality LUT, then through the window or the VOI LUT.

    Both depend on single pixels, so an image is worked through strip by strip.
    """
    import numpy as np
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut, apply_windowing

    rows = max(1, STRIP // pixels.shape[1])
    strips = [slice(start, start + rows) for start in range(0, len(pixels), rows)]

    def values(strip: slice) -> NDArray[np.float64]:
        return apply_voi_lut(apply_modality_lut(pixels[strip], file), file).astype(np.float64)

    if luts := file.get("VOILUTSequence"):
        low, high = 0.0, 2.0 ** luts[0].LUTDescriptor[2] - 1
        _mend(luts[0])
    elif _has_window(file):  # what it makes of the darkest and of the brightest value that there could be
        low, high = apply_windowing(np.array([-np.inf, np.inf]), file)
    else:
        for name in WINDOW:
            file.pop(name, None)  # one of them is missing or empty, which pydicom does not expect
        low = min(values(strip).min() for strip in strips)
        high = max(values(strip).max() for strip in strips)
    shown = np.empty(pixels.shape, np.uint8)
    for strip in strips:
        shares = (values(strip) - low) / ((high - low) or 1.0)
        shown[strip] = np.rint(255 * np.clip(shares, 0, 1))
    return shown


def _mend(lut: Any) -> None:
    """Let pydicom (3.0) look a value up by all of its bits, also if what it finds there has eight."""
    entries, first, depth = lut.LUTDescriptor
    if depth == 8 and not 0 < entries <= 256:
        lut.LUTDescriptor = [entries, first, 16]


def _has_window(file: Any) -> bool:
    """Return whether a file has a window. Elements may be there and empty, and values may be no numbers."""
    if not all(file.get(name) not in (None, "") and file[name].VM for name in WINDOW):
        return False
    for name in WINDOW:
        value = file[name].value
        first = float(value[0] if file[name].VM > 1 else value)
        if not math.isfinite(first):
            raise BadImageError(f"a DICOM file whose {name} is {first}")
    return True
