"""An .npz file of a user, or of a stranger, is read or refused in one sentence."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from sitar.data.own_data.npz import read_arrays
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
