"""Files are written whole, with the rights that the user's umask gives, and arrays are read within bounds."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sitar import files
from sitar.files import read_npz, to_npz, write_atomic


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no umask")
@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o027, 0o640)])
def test_the_umask_says_who_may_read_a_file(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "report.html", b"patients")
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == mode


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_an_error_of_the_disk_names_the_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from pathlib import Path
from sitar.files import write_atomic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomic(Path({str(tmp_path / "new.json")!r}), b"x" * 5000)
except OSError as error:
    print(error.filename)
"""
    (tmp_path / "new.json").write_text("old")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "new.json")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new.json": "old"}


ARRAYS = {"x": np.arange(12.0).reshape(3, 4), "words": np.array(["a", "bc"]), "f": np.asfortranarray(np.eye(3)),
          "none": np.zeros((0, 5)), "one": np.array(7)}  # fmt: skip


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(to_npz(ARRAYS))
    read = read_npz(tmp_path / "a.npz")
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


def test_an_array_is_in_memory_once_while_it_is_read(tmp_path: Path) -> None:
    size = 2**25
    np.savez(tmp_path / "a.npz", x=np.zeros(size, np.uint8))
    tracemalloc.start()
    try:
        assert read_npz(tmp_path / "a.npz")["x"].flags.writeable
        assert tracemalloc.get_traced_memory()[1] < 1.3 * size
    finally:
        tracemalloc.stop()


def claiming(shape: tuple[int, ...]) -> bytes:
    """A .npz file of a few bytes whose array claims a shape."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": shape})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x.npy", array.getvalue() + bytes(80))
    return packed.getvalue()


def test_an_array_that_claims_more_than_there_is_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    for shape in ((10**12,), (2**40, 2**40), (11,), (-1, 10)):
        (tmp_path / "a.npz").write_bytes(claiming(shape))
        with pytest.raises(ValueError, match=r"a\.npz' cannot be read"):
            read_npz(tmp_path / "a.npz")


def test_arrays_that_unpack_to_too_much_are_refused_with_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.npz").write_bytes(to_npz({"x": np.zeros(10**6)}))
    assert (tmp_path / "a.npz").stat().st_size < 20_000
    monkeypatch.setattr(files, "MOST", 10**6)
    with pytest.raises(ValueError, match="take 8,000,128 bytes, and at most 1,000,000 are read"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("offset", [6, 8])
def test_an_encrypted_or_strangely_packed_file_is_refused(tmp_path: Path, offset: int) -> None:
    """Bytes 6 and 8 of the head of a part are its flags and its compression, as are 8 and 10 in the directory."""
    content = bytearray(to_npz({"x": np.arange(5)}))
    directory = content.index(b"PK\x01\x02")
    content[offset] = content[directory + offset + 2] = 99
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz' cannot be read"):
        read_npz(tmp_path / "a.npz")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        read_npz(tmp_path / "a.npz")
