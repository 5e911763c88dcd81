"""Every image that can be asked about becomes a picture that a browser shows."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.asking import pool_of, save_images
from sitar.analysis.ask.pictures import MOST_SIDE, picture


def opened(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    assert image.format == "PNG"
    return image


def test_a_file_is_shown_as_it_is(tmp_path: Path) -> None:
    files = save_images(tmp_path / "images", 2)
    shown = opened(picture(pool_of([[0, 1]], files=files), 1))
    np.testing.assert_array_equal(np.asarray(shown), np.asarray(Image.open(files[1])))


def test_a_large_file_is_shown_smaller_and_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6  # the camera was held on its side
    Image.new("RGB", (2000, 1000)).save(tmp_path / "a.jpg", exif=exif)
    assert opened(picture(pool_of([[0]], files=[tmp_path / "a.jpg"]), 0)).size == (MOST_SIDE // 2, MOST_SIDE)


def test_sixteen_bits_are_shown_as_eight(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 65535, np.uint16)).save(tmp_path / "a.tif")
    assert np.asarray(opened(picture(pool_of([[0]], files=[tmp_path / "a.tif"]), 0))).min() == 255


@pytest.mark.parametrize(("channels", "shape"), [(1, (4, 5)), (2, (4, 5)), (3, (4, 5, 3)), (6, (4, 5, 3))])
def test_an_array_is_shown(channels: int, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, channels, 4, 5), dtype=np.uint8)
    shown = np.asarray(opened(picture(replace(pool_of([[0, 1]]), pictures=pixels), 1)))
    assert shown.shape == shape
    np.testing.assert_array_equal(shown if channels < 3 else shown[..., 0], pixels[1, 0])


def test_a_file_that_was_changed_raises_an_error_that_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="no image, or of a kind that is not known"):
        picture(pool_of([[0]], files=[tmp_path / "a.png"]), 0)
