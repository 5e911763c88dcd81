"""Pixels in colour, under a map, with a frame."""

from __future__ import annotations

import numpy as np

from sitar.reporting.pixels import framed, rgb, under_map


def test_channels_become_colours() -> None:
    image = np.arange(5, dtype=np.uint8)[:, None, None].repeat(2, 1).repeat(2, 2)
    assert rgb(image[1:2])[0, 0].tolist() == [1, 1, 1]
    assert rgb(image[1:3])[0, 0].tolist() == [1, 2, 0]
    assert rgb(image)[0, 0].tolist() == [0, 1, 2]


def test_the_box_is_drawn_on_what_is_looked_at() -> None:
    image = np.zeros((3, 10, 20), np.uint8)
    drawn = framed(image, [0.25, 0.2, 0.75, 1.0])
    assert image.max() == 0
    assert (drawn[0] > 0).sum() == 2 * 11 + 2 * 6  # columns 5 to 15, rows 2 to 9 which is the last
    assert drawn[:, 2, 5:16].min() == drawn[:, 9, 5:16].min() == drawn[:, 2:10, [5, 15]].min() == 255


def test_a_map_is_orange() -> None:
    image = np.full((3, 4, 4), 120, np.uint8)
    saliency = np.zeros((4, 4), np.float32)
    saliency[0, 0] = 1
    made = under_map(image, saliency).astype(int)
    assert made[0, 0, 0] - made[2, 0, 0] > 100
    assert made[0, 3, 3] == made[2, 3, 3]
