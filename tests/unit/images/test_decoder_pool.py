"""The processes that decode: who gets which chunk, what they leave behind, and platforms without Unix."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sitar
from sitar.images import decoder_pool
from sitar.images.decoder_pool import DecoderPool
from sitar.images.files import Files

SOURCE = Path(sitar.__file__).parent
UNIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}


@pytest.fixture
def images(tmp_path: Path) -> list[str]:
    """Nine images of one value each, and one file that is none."""
    for i in range(10):
        Image.new("RGB", (4, 4), (i, i, i)).save(tmp_path / f"{i}.png")
    (tmp_path / "7.png").write_bytes(b"nothing")
    return [f"{i}.png" for i in range(10)]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_chunk_is_reported_once(workers: int, images: list[str], tmp_path: Path) -> None:
    array = np.lib.format.open_memmap(tmp_path / "images.npy", mode="w+", dtype=np.uint8, shape=(10, 3, 4, 4))
    chunks = [[0, 1, 2], [3], [4, 5, 6, 7], [8, 9]]
    form = {"size": (4, 4), "crop_pct": None, "channels": 3}
    with DecoderPool(tmp_path / "images.npy", array.offset, Files([tmp_path]), form, workers) as pool:
        reports = list(pool.decode(images, chunks))
        processes = list(pool._processes)
        assert len(processes) == workers
    assert sorted(report.places for report in reports) == chunks
    assert {place: reason for report in reports for place, reason in report.bad.items()} == {
        7: "no image, or of a kind that is not known"
    }
    assert [image.tolist() == np.full((3, 4, 4), i).tolist() for i, image in enumerate(array)] == [
        i != 7 for i in range(10)
    ]
    assert all(process.poll() is not None for process in processes)


def test_lines_that_others_print_are_no_reports(
    images: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `sitecustomize.py`, which Python imports in every process, may print."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('hello'); print('half a line: ', end='')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    np.lib.format.open_memmap(tmp_path / "images.npy", mode="w+", dtype=np.uint8, shape=(10, 3, 4, 4))
    form = {"size": (4, 4), "crop_pct": None, "channels": 3}
    with DecoderPool(tmp_path / "images.npy", 128, Files([tmp_path]), form, 1) as pool:
        assert [report.places for report in pool.decode(images, [[0, 1], [2]])] == [[0, 1], [2]]


def test_shards_are_read_from_front_to_back(tmp_path: Path) -> None:
    """Each process has a part of its own, and the parts are all there is."""
    files = Files([])
    pool = DecoderPool(tmp_path / "images.npy", 0, files, {}, 3)
    shares = pool._shares([[i] for i in range(8)])
    assert [next(shares[0]), next(shares[1]), next(shares[2])] == [0, 1, 2]  # whoever is free takes the next
    files.shards = {"train.parquet": None}  # type: ignore[dict-item]
    assert [list(share) for share in pool._shares([[i] for i in range(8)])] == [[0, 1], [2, 3, 4], [5, 6, 7]]


def test_processes_end_with_an_error(images: list[str], tmp_path: Path) -> None:
    np.lib.format.open_memmap(tmp_path / "images.npy", mode="w+", dtype=np.uint8, shape=(10, 3, 4, 4))
    form = {"size": (4, 4), "crop_pct": None, "channels": 3}
    pool = DecoderPool(tmp_path / "images.npy", 128, Files([tmp_path]), form, 2)

    def stop_at_the_first() -> None:
        with pool:
            for _ in pool.decode(images, [[0], [1], [2]]):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_at_the_first()
    assert [process.poll() is not None for process in pool._processes] == [True, True]


def test_ctrl_c_is_kept_from_the_processes_on_every_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decoder_pool._out_of_reach() == {"process_group": 0}
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr("subprocess.CREATE_NEW_PROCESS_GROUP", 512, raising=False)
    assert decoder_pool._out_of_reach() == {"creationflags": 512}


def _imports(module: ast.Module) -> list[ast.AST]:
    """Return what a module holds, without imports that may fail."""
    tried = {
        inside
        for node in ast.walk(module)
        if isinstance(node, ast.Try) and any(getattr(one.type, "id", "") == "ImportError" for one in node.handlers)
        for one in node.body
        for inside in ast.walk(one)
    }
    return [node for node in ast.walk(module) if node not in tried]


def test_no_module_needs_unix_to_be_imported() -> None:
    imported = [
        (str(file.relative_to(SOURCE)), name)
        for file in sorted(SOURCE.rglob("*.py"))
        for node in _imports(ast.parse(file.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    assert imported
    assert [(file, name) for file, name in imported if name in UNIX_ONLY] == []
