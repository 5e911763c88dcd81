"""What lies in the working folder, or calls itself an image, cannot have a program started."""

from __future__ import annotations

import ast
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000, JPEGBaseline8Bit

import sitar
from sitar.cli.demo import _finish, _started
from sitar.images.bit_depth import BadImageError
from sitar.images.cache import cached_images
from sitar.images.decode import decode
from sitar.images.files import IMAGES, PILLOW_FORMATS, Files
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.training.environment import commit

from .test_decode import dicom

SOURCE = Path(sitar.__file__).parent
PLANTED = ("gzip", "zlib", "json", "mmap", "PIL", "torch", "sitar")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that is made by what must not be executed."""
    return tmp_path / "executed"


@pytest.fixture
def hostile(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with modules in it that have the names of those that we need."""
    folder = tmp_path / "images"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name + ' '!r})\nraise SystemExit(3)\n")
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(folder / "x.png")
    monkeypatch.chdir(folder)
    return folder


EMPTY = {
    "none": None,
    "empty": "",
    "an empty entry": f"{os.pathsep}nowhere",
    "empty at the end": f"/nowhere{os.pathsep}",
    "a dot": ".",
    "a way back": os.path.join("sub", ".."),
}


@pytest.mark.parametrize("path", EMPTY)
def test_decoders_execute_nothing_of_the_working_folder(
    path: str, hostile: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if (value := EMPTY[path]) is not None:
        monkeypatch.setenv("PYTHONPATH", value)
    cached = cached_images(f"door {path}", ["x.png"], Files([hostile]), (8, 8))
    assert not marker.exists(), f"executed: {marker.read_text()}"
    assert (cached.images == 200).all()


def test_packages_of_a_relative_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that the user has named is kept, whatever becomes the working folder of the new process."""
    from sitar.interpreter import module_environment

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", "", ".", "/opt/lib"]))
    found = module_environment()["PYTHONPATH"].split(os.pathsep)
    assert found == [str(SOURCE.parent), str(tmp_path / "lib"), "/opt/lib"]


def test_the_demo_executes_nothing_of_the_working_folder(tmp_path: Path, hostile: Path, marker: Path) -> None:
    """Settings that are wrong end a run of it at once; it says so only if the real package was started."""
    config, folder = {"ERM": load_config("demo/erm")}, {"ERM": RunFolder(tmp_path / "run")}
    with (
        pytest.raises(sitar.errors.SitarError, match="nonsense"),
        _started(folder, ["--set", "train.nonsense=1"]) as run,
    ):
        _finish(folder, config, run)
    assert not marker.exists(), f"executed: {marker.read_text()}"


def test_git_is_not_taken_from_the_working_folder(hostile: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(hostile / "git", f"touch {marker}; exit 1")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", os.environ["PATH"]]))
    commit()
    assert not marker.exists()


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_python_is_started_in_one_place_only() -> None:
    """Whoever starts it elsewhere would have to remember what `interpreter.py` knows."""
    starts = [
        str(file.relative_to(SOURCE))
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "executable"
    ]
    assert starts == ["interpreter.py"]


POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
%%EndComments
0 0 8 8 rectfill
showpage
%%EOF
"""
BINARY_HEAD = b"\xc5\xd0\xd3\xc6" + (30).to_bytes(4, "little") + len(POSTSCRIPT).to_bytes(4, "little") + bytes(18)
PICTURE = np.full((8, 8, 3), 120, np.uint8)


@pytest.fixture
def ghostscript(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `gs` that only says that it was started, before any real one."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program(programs / "gs", f"echo started >> {marker}; exit 1")
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None, raising=False)  # Pillow looks for it once a process


def saved(kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PICTURE).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.usefixtures("ghostscript")
@pytest.mark.parametrize("head", [b"", BINARY_HEAD], ids=["text", "binary head"])
def test_postscript_is_no_image(head: bytes, marker: Path) -> None:
    with pytest.raises(BadImageError, match="no image, or of a kind that is not known"):
        decode(head + POSTSCRIPT, (8, 8))
    assert not marker.exists()


@pytest.mark.usefixtures("ghostscript")
def test_postscript_that_is_called_a_jpeg_is_a_bad_file(tmp_path: Path, marker: Path) -> None:
    """The whole way, through a process that decodes."""
    (tmp_path / "x.jpg").write_bytes(POSTSCRIPT)
    (tmp_path / "y.jpg").write_bytes(saved("JPEG"))
    cached = cached_images("postscript", ["x.jpg", "y.jpg"], Files([tmp_path]), (8, 8), on_bad="skip")
    assert cached.bad == {"x.jpg": "no image, or of a kind that is not known"}
    assert cached.good.tolist() == [False, True]
    assert not marker.exists()


@pytest.mark.usefixtures("ghostscript")
@pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEG2000])
def test_postscript_within_dicom_is_a_bad_file(syntax: Any, marker: Path) -> None:
    with pytest.raises(BadImageError):
        decode(dicom(PICTURE[..., 0], syntax, PixelData=encapsulate([POSTSCRIPT])), (8, 8))
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["EPS", "ICO", "PCX", "SGI", "TGA", "DIB", "MSP", "XBM", "SPIDER", "PDF"])
def test_kinds_that_are_not_listed_are_refused(kind: str) -> None:
    file = io.BytesIO()
    Image.fromarray(PICTURE).convert("1" if kind in ("MSP", "XBM") else "F" if kind == "SPIDER" else "RGB").save(
        file, kind
    )
    with pytest.raises(BadImageError, match="no image, or of a kind that is not known"):
        decode(file.getvalue(), (8, 8))


@pytest.mark.parametrize("end", [end for end in IMAGES if end not in (".dcm", ".dicom")])
def test_every_listed_kind_is_decoded(end: str) -> None:
    """As Pillow itself writes a file of that name."""
    kind = Image.registered_extensions()[end]
    assert kind in PILLOW_FORMATS
    np.testing.assert_allclose(decode(saved(kind), (8, 8)), 120, atol=2)


def test_pillow_is_given_no_kind_that_is_not_listed() -> None:
    assert {Image.registered_extensions()[end] for end in IMAGES if not end.startswith(".d")} == set(PILLOW_FORMATS)


def test_several_pictures_in_a_jpeg_are_its_first() -> None:
    """Phones write such files (MPO) and call them .jpg."""
    data = saved("MPO", save_all=True, append_images=[Image.fromarray(0 * PICTURE)])
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "MPO"
    np.testing.assert_allclose(decode(data, (8, 8)), 120, atol=2)


def test_pillow_is_told_the_kinds_wherever_it_opens_a_file() -> None:
    opens = [
        (file.relative_to(SOURCE), node.lineno, {keyword.arg for keyword in node.keywords})
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Image.open"
    ]
    assert opens
    assert [place for *place, keywords in opens if "formats" not in keywords] == []
