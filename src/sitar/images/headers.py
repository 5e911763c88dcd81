"""Read what a file says of its image before a pixel is decoded: its bytes, its width and its height."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

from PIL import Image

from sitar.images.files import PILLOW_FORMATS, Files

Header = tuple[int, int, int]  # bytes, width, height


def read_headers(files: Files, names: Sequence[str]) -> list[Header | None]:
    """Return the header of each image. They are read in the order of their names, cheap within Parquet files."""
    headers = {name: read_header(files, name) for name in sorted(set(names))}
    return [headers[name] for name in names]


def read_header(files: Files, name: str) -> Header | None:
    """Return the header of an image file. None: it cannot be read, or Pillow does not know its kind."""
    try:
        content = files.read(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a size that is too large was warned of when the image was decoded
            with Image.open(io.BytesIO(content), formats=PILLOW_FORMATS) as image:
                return len(content), image.width, image.height
    except Exception:  # what Pillow raises for a damaged file is not specified
        return None
