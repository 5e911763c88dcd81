"""Image files, images of Pillow and arrays, as a caller hands them to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sitar.data.own_data.folder import FolderConfig
from sitar.data.own_data.npz import NpzConfig
from sitar.errors import DataError
from sitar.evaluation.given import as_stored
from sitar.images.decode import decode

RGB = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
TURNED = Image.Exif()
TURNED[0x0112] = 6  # the camera was held upright


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files that differ in what has to be done to them."""
    image = Image.fromarray(RGB)
    image.save(tmp_path / "photo.jpg", exif=TURNED)
    image.convert("RGBA").save(tmp_path / "clear.png")
    Image.fromarray(RGB[..., 0].astype(np.uint16) * 257).save(tmp_path / "deep.png")
    return sorted(tmp_path.iterdir())


@pytest.mark.parametrize("settings", [{}, {"channels": 1}, {"crop_pct": 0.875}])
def test_files_and_open_images_become_what_training_decodes(settings: dict[str, Any], files: list[Path]) -> None:
    config = FolderConfig(image_size=16, **settings)
    expected = [decode(file.read_bytes(), (16, 16), config.crop_pct, config.channels) for file in files]
    opened = [Image.open(file) for file in files]
    for given in (files, [str(file) for file in files], tuple(opened), [files[0], *opened[1:]]):
        np.testing.assert_array_equal(as_stored(given, config), np.stack(expected))
    np.testing.assert_array_equal(as_stored(str(files[0]), config), expected[0][None])
    np.testing.assert_array_equal(as_stored(opened[1], config), expected[1][None])


def test_arrays_stay_as_they_are() -> None:
    for given in (RGB, torch.from_numpy(RGB), RGB.tolist()):
        np.testing.assert_array_equal(as_stored(given, FolderConfig()), RGB)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none.png", r"There is no file 'none\.png'"),
        (["text.png"], r"'text\.png' cannot be read: no image"),
        (".", r"'\.' cannot be read: not a regular file"),
        (np.array([None, "x"], dtype=object), "an array of numbers, or paths"),
        ([[1.0], [1.0, 2.0]], "an array of numbers, or paths"),
        (["text.png", 3], "an array of numbers, or paths"),
        (None, "an array of numbers, or paths"),
    ],
)
def test_what_is_no_input_is_refused(given: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.png").write_text("no image")
    with pytest.raises(DataError, match=message):
        as_stored(given, FolderConfig())


def test_a_model_of_arrays_reads_no_images(files: list[Path]) -> None:
    with pytest.raises(DataError, match="trained on arrays"):
        as_stored(files, NpzConfig(file="data.npz"))
