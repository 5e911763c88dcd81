"""Make the picture of an image that a person is asked about, of a kind that every browser shows."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from sitar.analysis.ask.pool import Pool
from sitar.files import read_regular
from sitar.images.decode import upright
from sitar.images.files import MOST

MOST_SIDE = 768  # pixels of the longer side


def picture(pool: Pool, image: int) -> bytes:
    """Return a PNG file of an image of the pool, as large as the file has it but for MOST_SIDE."""
    if pool.pictures is not None:
        channels = np.asarray(pool.pictures[image])
        shown = Image.fromarray(channels[0] if len(channels) < 3 else channels[:3].transpose(1, 2, 0))
    else:
        assert pool.files is not None
        shown = upright(read_regular(pool.files[image], MOST))  # who knows what it is by now
        shown.thumbnail((MOST_SIDE, MOST_SIDE))
    buffer = io.BytesIO()
    shown.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
