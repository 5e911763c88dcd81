"""An .npz file of a user, or of a stranger, is read or refused in one sentence."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sitar.data.own_data.npz import Npz, NpzConfig, read_arrays
from sitar.errors import DataError


def test_arrays_are_read_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(3), y=np.array(["a", "b", "c"]))
    read = read_arrays(tmp_path / "a.npz", ["x", "y"])
    np.testing.assert_array_equal(read["x"], np.eye(3))
    assert read["y"].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("offset", [6, 8], ids=["encrypted", "compressed in an unknown way"])
def test_a_file_that_is_packed_strangely_is_refused(tmp_path: Path, offset: int) -> None:
    packed = io.BytesIO()
    np.savez(packed, x=np.arange(5))
    content = bytearray(packed.getvalue())
    content[offset] = content[content.index(b"PK\x01\x02") + offset + 2] = 99
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz"):
        read_arrays(tmp_path / "a.npz", ["x"])


def test_objects_are_refused_with_what_to_do(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"Python objects.*\.astype\(str\)"):
        read_arrays(tmp_path / "a.npz", ["x"])


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npz"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"a\.npz' cannot be read: it is not a regular file"):
        read_arrays(path, ["x"])


@pytest.mark.parametrize("key", ["y", "attribute"])
def test_words_that_no_file_can_hold_are_named(tmp_path: Path, key: str) -> None:
    columns = {"y": np.array(["a", "b", "a"]), key: np.array(["a", "b\udc80", "\ud800"])}
    np.savez(tmp_path / "a.npz", x=np.eye(3), **columns)
    config = NpzConfig(file=str(tmp_path / "a.npz"), attribute_key=None if key == "y" else key)
    with pytest.raises(DataError, match=rf"2 of 3 words of '{key}' are no text.* 'b\\udc80' of sample 2"):
        Npz.read(tmp_path / "a.npz", config)


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_array_that_numpy_would_not_pack_so_is_refused(tmp_path: Path, packing: int) -> None:
    """Python unpacks such a part as a whole, however large it becomes."""
    array = io.BytesIO()
    np.save(array, np.zeros(5))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", packing) as archive:
        archive.writestr("x.npy", array.getvalue())
    with pytest.raises(DataError, match="packed in a way that is not read"):
        read_arrays(tmp_path / "a.npz", ["x"])
