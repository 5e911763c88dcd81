"""Folders are walked as people lay them out: links, loops of links, and folders that may not be read."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sitar.errors import DataError
from sitar.images.bit_depth import BadImageError
from sitar.images.files import Files, read_text

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other links and rights")
NOBODY = 65534


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user can reach, with two classes of images."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    for name in ("cat", "dog"):
        (place / name).mkdir()
        for i in range(3):
            (place / name / f"{i}.png").write_bytes(b"")
    yield place
    (place / "dog").chmod(0o755)
    shutil.rmtree(place)


NAMES = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(3)]


def test_a_folder_that_may_not_be_read_is_named(root: Path) -> None:
    (root / "dog").chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)  # root may read everything
    try:
        with pytest.raises(DataError, match=r"dog' cannot be read: Permission denied"):
            Files([root]).names()
    finally:
        os.seteuid(before)


def test_links_between_folders_count_no_file_twice(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "cat" / "to dogs").symlink_to(root / "dog")
    (root / "dog" / "to cats").symlink_to(root / "cat")
    (root / "all").symlink_to(root)
    assert Files([root]).names() == NAMES
    assert caplog.text.count("is a link to a folder that is read already") == 3


def test_a_link_to_a_folder_elsewhere_is_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "bird").symlink_to(root / "dog")
    (tmp_path / "fish").mkdir()
    (tmp_path / "fish" / "0.png").write_bytes(b"")
    assert Files([tmp_path]).names() == ["bird/0.png", "bird/1.png", "bird/2.png", "fish/0.png"]


def test_texts_and_images_that_unpack_to_much_are_refused_with_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sitar.images.files.MOST", 10**5)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(bytes(10**6)))
    for name in ("b", "images"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("b.txt", bytes(10**6))
            archive.writestr("c.png", bytes(10**6))
    for name in ("a.txt", "b.txt"):
        with pytest.raises(DataError, match="unpacks to more than 100,000 bytes"):
            read_text(tmp_path, name)
    with pytest.raises(BadImageError, match="1,000,000 bytes, where at most 100,000 are read"):
        Files([], [tmp_path / "images.zip"]).read("c.png")
