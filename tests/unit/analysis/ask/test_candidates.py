"""Candidates predict all images once. Those that do not fit, and images that must not be asked about, are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sitar
from helpers.asking import save_images
from helpers.made_data import npz_of_images
from helpers.runs import TINY_MODEL, run, settings
from sitar.analysis.ask import candidates
from sitar.analysis.ask.candidates import read_pool, refuse_what_cannot_be_shown
from sitar.errors import ConfigError, DataError, RunError
from sitar.run_folder import RunFolder

SIZE = 16


def train(path: Path, data: dict[str, object], seed: int = 0) -> RunFolder:
    return run(settings("erm", data=data, model=TINY_MODEL, train={"epochs": 1, "batch_size": 16}, seed=seed), path)


def made_folder(root: Path, classes: tuple[str, ...] = ("cat", "dog")) -> dict[str, object]:
    """A folder a class, in splits; images are noise."""
    random = np.random.default_rng(0)
    for split, n in (("train", 12), ("val", 4), ("test", 4)):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for i in range(n):
                pixels = random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    return {"name": "folder", "root": str(root), "image_size": SIZE}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on one folder, one on another folder of other classes, and new images."""
    root = tmp_path_factory.mktemp("candidates")
    data = made_folder(root / "data")
    train(root / "a", data)
    train(root / "b", data, seed=1)
    train(root / "other", made_folder(root / "other_data", ("dog", "cat", "bird")))
    save_images(root / "new" / "deeper", 30, SIZE)
    return root


def test_predictions_are_those_of_the_models(place: Path, tmp_path: Path) -> None:
    pool = read_pool([place / "a", place / "b"], place / "new", tmp_path / "answers.csv", "cpu")
    assert pool.names[:2] == ["deeper/00000.png", "deeper/00001.png"]
    assert pool.classes == ("cat", "dog")
    assert pool.labels == ["erm, seed 0", "erm, seed 1"]
    assert pool.files is not None
    x = np.stack([np.asarray(Image.open(file)).transpose(2, 0, 1) for file in pool.files])
    for row, name in zip(pool.predictions, "ab", strict=True):
        np.testing.assert_array_equal(row, sitar.load(place / name, device="cpu").predict(x))
    np.testing.assert_array_equal(pool.disagree, pool.predictions[0] != pool.predictions[1])


def test_a_restart_loads_no_model(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, answers = [place / "a", place / "b"], tmp_path / "answers.csv"
    first = read_pool(runs, place / "new", answers, "cpu")
    loads = counted(monkeypatch)
    again = read_pool(runs, place / "new", answers, "cpu")
    assert loads == []
    np.testing.assert_array_equal(first.predictions, again.predictions)
    assert (again.names, again.files, again.labels, again.notes) == (
        first.names, first.files, first.labels, first.notes,
    )  # fmt: skip
    read_pool(runs[::-1], place / "new", answers, "cpu")
    assert len(loads) == 2, "other candidates predict anew"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The models that are loaded from now on."""
    loads: list[object] = []
    real: Callable[..., object] = candidates.load
    monkeypatch.setattr(candidates, "load", lambda *args: (loads.append(args), real(*args))[1])
    return loads


@pytest.mark.parametrize("change", ["another image", "a changed image", "a damaged cache"])
def test_what_has_changed_is_predicted_anew(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    images, answers = tmp_path / "images", tmp_path / "answers.csv"
    files = save_images(images, 6, SIZE)
    read_pool([place / "a"], images, answers, "cpu")
    loads = counted(monkeypatch)
    if change == "another image":
        Image.new("RGB", (SIZE, SIZE), "red").save(images / "more.png")
    elif change == "a changed image":
        Image.new("RGB", (SIZE, SIZE), "red").save(files[0])
    else:
        (tmp_path / ".answers.csv.predictions.npz").write_bytes(b"nothing")
    pool = read_pool([place / "a"], images, answers, "cpu")
    assert len(loads) == 1
    assert len(pool) == (7 if change == "another image" else 6)


def test_images_in_an_array_can_be_shown_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    config = npz_of_images(tmp_path / "data").model_dump()
    folder = train(tmp_path / "run", config)
    shape = sitar.load(folder, device="cpu").data.task.shape
    x = np.random.default_rng(5).integers(0, 256, (9, *shape), dtype=np.uint8)
    np.savez(tmp_path / "new.npz", x=x)
    for _ in range(2):
        pool = read_pool([folder.path], tmp_path / "new.npz", tmp_path / "answers.csv", "cpu")
        assert pool.names == [str(i) for i in range(9)]
        assert pool.files is None
        np.testing.assert_array_equal(pool.pictures, x)
    refuse_what_cannot_be_shown(pool)


def test_features_cannot_be_shown(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=random.normal(size=(60, 4)).astype(np.float32), y=np.arange(60) % 2)
    folder = train(tmp_path / "run", {"name": "npz", "file": str(tmp_path / "data.npz")})
    np.savez(tmp_path / "new.npz", x=random.normal(size=(9, 4)).astype(np.float32))
    pool = read_pool([folder.path], tmp_path / "new.npz", None, "cpu")
    assert pool.predictions.shape == (1, 9)
    with pytest.raises(RunError, match="cannot look at them"):
        refuse_what_cannot_be_shown(pool)


def test_candidates_of_other_classes_are_refused(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"same classes in the same order: .* cat, dog, and .* bird, cat, dog"):
        read_pool([place / "a", place / "other"], place / "new", None, "cpu")


def test_a_candidate_that_is_given_twice_is_refused(place: Path) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        read_pool([place / "a", place / "b", place / "b" / ".." / "a"], place / "new", None, "cpu")


def test_a_folder_that_is_no_finished_run_is_refused(place: Path) -> None:
    with pytest.raises(RunError, match=r"config\.yaml"):
        read_pool([place / "a", place / "new"], place / "new", None, "cpu")


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


def test_an_image_that_cannot_be_read_is_left_out_and_said(place: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    save_images(images, 5, SIZE)
    (images / "broken.png").write_bytes(b"no image")
    pool = read_pool([place / "a", place / "b"], images, None, "cpu")
    assert len(pool) == 5
    assert "1 images cannot be read and are left out, such as broken.png" in pool.notes[0]


def test_a_name_with_a_line_break_is_refused(place: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    save_images(images, 5, SIZE)
    (images / "00000.png").rename(images / "0\n0.png")
    with pytest.raises(DataError, match="line break"):
        read_pool([place / "a"], images, None, "cpu")
