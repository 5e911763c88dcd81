"""Image files, images of Pillow and arrays, as a caller hands them to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import made_data
from helpers.runs import TINY_MODEL, run
from helpers.runs import settings as toys_settings
from sitar.data.own_data.folder import FolderConfig
from sitar.data.own_data.npz import NpzConfig
from sitar.errors import DataError
from sitar.evaluation.given import as_stored
from sitar.evaluation.inputs import read_inputs
from sitar.evaluation.trained_model import TrainedModel, load
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


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    """Tiny finished runs, on images and on features."""
    train = {"epochs": 1, "batch_size": 16, "checkpoint_seconds": 0}
    made = {}
    for maker in ("folder", "features"):
        root = tmp_path_factory.mktemp("data")
        data = made_data.MAKERS[maker](root).model_dump()
        folder = run(toys_settings("erm", data=data, model=TINY_MODEL, train=train), root / "run")
        made[maker] = load(folder.path, "cpu")
    return made


def test_classes_are_said_by_name(models: dict[str, TrainedModel]) -> None:
    model = models["folder"]
    inputs = read_inputs(model.config.data.root, model)  # type: ignore[attr-defined]
    assert inputs.files is not None
    expected = model.logits(inputs.x)
    np.testing.assert_array_equal(model.logits(inputs.files), expected)
    np.testing.assert_array_equal(model.predict_index(inputs.files), expected.argmax(1))
    assert model.predict(inputs.files).tolist() == [model.classes[i] for i in expected.argmax(1)]
    assert model.classes != ("0", "1")


def test_features_of_any_type_are_numbers_and_must_be_finite(models: dict[str, TrainedModel]) -> None:
    model = models["features"]
    x = np.arange(3 * model.task.shape[0]).reshape(3, -1)
    for kind in (np.uint8, np.int64, np.float16, np.float64):
        np.testing.assert_allclose(model.logits(x.astype(kind)), model.logits(x.astype(np.float32)))
    for bad in (np.nan, np.inf, 1e300):
        with pytest.raises(DataError, match="NaN or infinite"):
            model.predict(np.where(x == 2, bad, x))


def test_an_array_that_is_read_only_is_taken_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    locked = RGB.copy()
    locked.setflags(write=False)
    np.testing.assert_array_equal(as_stored(locked, FolderConfig()), RGB)
    assert not recwarn.list
