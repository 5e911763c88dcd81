"""What lies in the working folder, or calls itself an image, cannot have a program started."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sitar
from sitar.cli.demo import RUNS, _train_all
from sitar.images.cache import cached_images
from sitar.images.files import Files
from sitar.records import RunFolder
from sitar.training.environment import commit

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
    """Settings that are wrong end its runs at once; they say so only if the real package was started."""
    folders = {label: RunFolder(tmp_path / "runs" / label) for label in RUNS}
    with pytest.raises(sitar.errors.SitarError, match="nonsense"):
        _train_all(folders, dict.fromkeys(RUNS, 1), ["--set", "train.nonsense=1"])
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
