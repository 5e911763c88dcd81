"""Candidates predict all images. Those that do not fit, and images that must not be asked about, are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sitar
from helpers.asking import SIZE, save_images, train
from sitar.analysis.ask.pool import read_pool
from sitar.errors import ConfigError, DataError


def test_predictions_are_those_of_the_models(place: Path, tmp_path: Path) -> None:
    pool = read_pool([place / "a", place / "b"], place / "new", tmp_path / "answers.csv", "cpu")
    assert pool.names[:2] == ["deeper/00000.png", "deeper/00001.png"]
    assert pool.classes == ("cat", "dog")
    assert pool.labels == ["a", "b"]
    assert pool.files is not None
    x = np.stack([np.asarray(Image.open(file)).transpose(2, 0, 1) for file in pool.files])
    for row, name in zip(pool.predictions, "ab", strict=True):
        np.testing.assert_array_equal(row, sitar.load(place / name, device="cpu").predict_index(x))
    np.testing.assert_array_equal(pool.disagree, pool.predictions[0] != pool.predictions[1])


def test_candidates_of_other_classes_are_refused(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"same classes in the same order: .* cat, dog, and .* bird, cat, dog"):
        read_pool([place / "a", place / "other"], place / "new", None, "cpu")


def test_images_of_the_test_split_are_refused_under_any_name(place: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    save_images(images, 5, SIZE)
    Image.open(place / "data" / "test" / "dog" / "2.png").save(images / "renamed.bmp")
    with pytest.raises(DataError, match=r"1 of the 6 images are in the split 'test' of .*'renamed.bmp'"):
        read_pool([place / "a", place / "b"], images, tmp_path / "answers.csv", "cpu")
    assert not list(tmp_path.glob(".answers*")), "nothing is kept that a later call would take"


def test_images_that_were_trained_on_are_said(place: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    save_images(images, 5, SIZE)
    Image.open(place / "data" / "train" / "dog" / "2.png").save(images / "known.png")
    pool = read_pool([place / "a"], images, None, "cpu")
    assert "1 of the images are in the split 'train'" in pool.notes[0]


def test_candidates_can_be_asked_about_without_their_data(place: Path, tmp_path: Path) -> None:
    save_images(tmp_path / "images", 5, SIZE)
    (place / "data").rename(place / "elsewhere")
    try:
        pool = read_pool([place / "a", place / "b"], tmp_path / "images", None, "cpu")
    finally:
        (place / "elsewhere").rename(place / "data")
    assert len(pool) == 5
    assert "training data of" in pool.notes[0]


def test_an_image_that_cannot_be_read_is_left_out_and_said(place: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    save_images(images, 5, SIZE)
    (images / "broken.png").write_bytes(b"no image")
    pool = read_pool([place / "a", place / "b"], images, None, "cpu")
    assert len(pool) == 5
    assert "1 image cannot be read and is left out, such as broken.png" in pool.notes[0]


def test_a_name_with_a_line_break_is_refused(place: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    save_images(images, 5, SIZE)
    (images / "00000.png").rename(images / "0\n0.png")
    with pytest.raises(DataError, match="line break"):
        read_pool([place / "a"], images, None, "cpu")


def test_each_head_of_a_run_is_a_candidate(place: Path, tmp_path: Path) -> None:
    """They are kept apart beside the answers, too, when the runs have moved."""
    data = {"name": "folder", "root": str(place / "data"), "image_size": SIZE, "unlabelled": str(place / "new")}
    train(place / "heads", data, method="divdis")
    answers = tmp_path / "answers.csv"
    pool = read_pool([place / "a", place / "heads"], place / "new", answers, "cpu")
    assert pool.labels == ["a", "heads, head 0", "heads, head 1"]
    assert pool.runs == [str(place / name) for name in ("a", "heads", "heads")]
    model = sitar.load(place / "heads", device="cpu")
    assert pool.files is not None
    x = np.stack([np.asarray(Image.open(file)).transpose(2, 0, 1) for file in pool.files])
    for head, row in enumerate(pool.predictions[1:]):
        np.testing.assert_array_equal(row, model.logits(x, head).argmax(1))
    np.testing.assert_array_equal(model.logits(x), model.logits(x, 0))
    assert (model.heads, sitar.load(place / "a", device="cpu").heads) == (2, 1)
    again = read_pool([place / "a", place / "heads"], place / "new", answers, "cpu")
    assert (again.runs, again.labels) == (pool.runs, pool.labels)
    np.testing.assert_array_equal(again.predictions, pool.predictions)
