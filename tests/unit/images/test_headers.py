"""What a file says of its image."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from sitar.images.files import Files
from sitar.images.headers import read_header


def test_bytes_width_and_height(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    assert read_header(Files([tmp_path]), "a.png") == ((tmp_path / "a.png").stat().st_size, 30, 20)


def test_what_cannot_be_read_has_none(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(b"no image")
    assert read_header(Files([tmp_path]), "b.png") is None
    assert read_header(Files([tmp_path]), "missing.png") is None
