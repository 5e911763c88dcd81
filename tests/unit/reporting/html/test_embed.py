"""Contact sheets inside a page."""

from __future__ import annotations

import numpy as np

from helpers.pages import pixels
from sitar.reporting.html.embed import contact_sheet


def test_tiles_of_a_sheet_do_not_shine_into_each_other() -> None:
    images = np.zeros((2, 3, 1, 10, 13), np.uint8)
    images[0, 1] = images[1, 2] = 255
    made = contact_sheet(images)
    picture, (tall, wide) = pixels(made.uri), made.pitch
    assert (tall, wide) == (16, 16)
    for i in range(2):
        for j in range(3):
            tile = picture[i * tall : i * tall + 10, j * wide : j * wide + 13]
            assert np.abs(tile.astype(int) - int(images[i, j, 0, 0, 0])).max() <= 2
