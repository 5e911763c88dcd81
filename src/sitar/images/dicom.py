"""DICOM files are read as a viewer shows them, in eight bits: rescaled, and through their window (needs pydicom)."""

from __future__ import annotations

import io
import math
import warnings
import zlib
from typing import TYPE_CHECKING, Any

from PIL import Image

from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError, to_eight_bits

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
