"""DICOM files are read as a viewer shows them: rescaled, windowed, in eight bits (needs pydicom)."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from PIL import Image

from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError, to_eight_bits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def is_dicom(data: bytes) -> bool:
    """Return whether a file is DICOM, whatever it is called."""
    return data[128:132] == b"DICM"


def read_dicom(data: bytes, max_pixels: int) -> Image.Image:
    """Read a gray or RGB image, in the file's first window, or from its darkest to its brightest value."""
    try:
        from pydicom import dcmread
        from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
        from pydicom.pixels.utils import pixel_array
    except ImportError as error:
        raise DataError('DICOM files need pydicom: pip install "sitar[medical]".') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that break the standard and can be read all the same
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
        gray = _windowed(apply_modality_lut(pixels, file).astype("float64"), file)
    return Image.fromarray(255 - gray if kind == "MONOCHROME1" else gray)


def _windowed(values: NDArray[np.float64], file: Any) -> NDArray[np.uint8]:
    """Scale values to 0 to 255 over the window (DICOM PS3.3, C.11.2.1.2.1)."""
    import numpy as np

    center, width = (_first(file.get(name)) for name in ("WindowCenter", "WindowWidth"))
    if center is None or width is None:
        low, high = values.min(), values.max()
    elif (function := file.get("VOILUTFunction", "LINEAR")) != "LINEAR":
        raise BadImageError(f"the window function {function!r}, where only LINEAR is known")
    else:
        low, high = center - 0.5 - (width - 1) / 2, center - 0.5 + (width - 1) / 2
    return np.rint(255 * np.clip((values - low) / max(high - low, 1e-9), 0, 1)).astype(np.uint8)


def _first(value: Any) -> float | None:
    """Return the first value of an element that may have several, as windows have them."""
    if value is None or value == "":
        return None
    return float(value[0] if hasattr(value, "__getitem__") and not isinstance(value, str) else value)
