"""A cache of decoded images is what was written, row by row, or it is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.format import open_memmap
from PIL import Image

from sitar.data.rows import stored_rows
from sitar.errors import DataError
from sitar.images import cache
from sitar.images.cache import GOOD, Cached, cached_images
from sitar.images.files import Files

N, SIZE = 12, (6, 6)


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Cached]:
    monkeypatch.setenv("SITAR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    random = np.random.default_rng(0)
    for i in range(N):
        Image.fromarray(random.integers(0, 256, (9, 9, 3), np.uint8)).save(tmp_path / "images" / f"{i:02}.png")
    files = Files([tmp_path / "images"])
    return lambda: cached_images("made", files.names(), files, SIZE, workers=1)


def folder_of(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "cache").iterdir()
    return folder


def read_rows(cached: Cached) -> None:
    stored_rows(cached.images, np.arange(N), cached.sums)


DAMAGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zeroed": np.zeros_like,
    "rolled": lambda images: np.roll(images, 1, axis=0),
    "fewer rows": lambda images: images[:-2],
    "smaller": lambda images: images[:, :, :-1],
    "of another kind": lambda images: images.astype(np.float32),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_changed_images_are_named(tmp_path: Path, read: Callable[[], Cached], damage: str) -> None:
    read()
    file = folder_of(tmp_path) / "images.npy"
    np.save(file, DAMAGES[damage](np.load(file)))
    with pytest.raises(DataError, match=r"cache .*damaged.*Remove"):
        read_rows(read())


def test_one_flipped_bit_is_named_when_its_row_is_read_and_not_before(
    tmp_path: Path, read: Callable[[], Cached]
) -> None:
    read()
    images = open_memmap(folder_of(tmp_path) / "images.npy", mode="r+")
    images[7, 1, 2, 3] ^= 4
    images.flush()
    cached = read()
    stored_rows(cached.images, np.array([0, 6, 8]), cached.sums)
    with pytest.raises(DataError, match="1 of 3 rows that were read, such as row 7"):
        stored_rows(cached.images, np.array([0, 5, 7, 9]), cached.sums)  # row 0 was compared before


@pytest.mark.parametrize("name", ["state.npy", "sums.npy", "index.json"])
def test_one_flipped_bit_beside_the_images_is_named(tmp_path: Path, read: Callable[[], Cached], name: str) -> None:
    read()
    file = folder_of(tmp_path) / name
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        read()


def test_a_cache_of_an_earlier_release_is_compared_as_a_whole_once(tmp_path: Path, read: Callable[[], Cached]) -> None:
    sums = read().sums.sums
    folder = folder_of(tmp_path)
    (folder / "sums.npy").unlink()
    assert (read().sums.sums == sums).all()
    assert (folder / "sums.npy").is_file()
    (folder / "sums.npy").unlink()
    images = open_memmap(folder / "images.npy", mode="r+")
    images[3, 0, 0, 0] ^= 1
    images.flush()
    with pytest.raises(DataError, match="damaged"):
        read()


def test_a_preparation_does_not_trust_what_a_killed_one_has_left(tmp_path: Path, read: Callable[[], Cached]) -> None:
    whole = np.array(read().images)
    folder = folder_of(tmp_path)
    before = json.loads((folder / cache.CLOSED).read_text())
    (folder / cache.CLOSED).unlink()
    images, state = (open_memmap(folder / name, mode="r+") for name in ("images.npy", "state.npy"))
    assert (state == GOOD).all()
    images[4] = 0
    images.flush()
    after = read()
    np.testing.assert_array_equal(after.images, whole)
    assert json.loads((folder / cache.CLOSED).read_text()) == before


def test_an_array_that_has_no_room_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of its room would stay taken, and other processes of the disk would have none."""
    asked = []
    monkeypatch.setattr(cache.os, "posix_fallocate", lambda *parts: asked.append(parts), raising=False)
    free = cache.shutil.disk_usage(tmp_path).free
    with pytest.raises(DataError, match="there is no room for them"):
        cache.new_array(tmp_path / "a.npy", (2 * free,), np.uint8)
    assert asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_head_of_what_a_killed_preparation_has_left_is_made_again(tmp_path: Path) -> None:
    shape = (4, 3, 8, 8)
    cache._arrays(tmp_path, shape)
    file = tmp_path / cache.IMAGES
    content = file.read_bytes()
    file.write_bytes(content.replace(b"(4, 3, 8, 8)", b"(4, 3, 8, 8("))
    assert [array.shape for array in cache._arrays(tmp_path, shape)] == [shape, (4,), (4,)]
