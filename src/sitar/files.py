"""Read and write whole files: atomically, and without pickles."""

from __future__ import annotations

import io
import json
import math
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sitar.errors import ConfigError
from sitar.writing import replaced

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST = 2**31  # bytes of all arrays of a file that a run folder holds
PART = 2**20  # bytes of an array that are unpacked at a time
NPZ_ERRORS = (  # what is raised for a file that is damaged, of another kind, or encrypted
    OSError, ValueError, EOFError, KeyError, RuntimeError, NotImplementedError, MemoryError, OverflowError,
    zipfile.BadZipFile, zlib.error, SyntaxError, struct.error, tokenize.TokenError, RecursionError,
)  # fmt: skip


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path in which `~` is the home of the user, or `~name` that of another one."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"There is no {os.fspath(path)!r}: this machine has no such user. Write './~' for a name."
        ) from error


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that, whatever happens, either the old file or the whole new one is there.

    Who may read it is for the user's umask to say.
    """
    with replaced(path) as file:
        file.write(content)


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Read a file. One that is no regular file, or has more than `most` bytes, raises a ValueError that says so.

    A pipe would wait for somebody to write into it, and a device has no end.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{str(path)!r} cannot be read: it is not a regular file, but a pipe or a device")
        if most is not None and status.st_size > most:
            raise ValueError(f"{str(path)!r} has {status.st_size:,} bytes, and at most {most:,} are read")
        return file.read(status.st_size)


def to_json(value: Any) -> bytes:
    """Return the text of a JSON file. NaN and infinity are refused, since JSON has neither."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def to_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of a compressed .npz file."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def to_npy(array: NDArray[Any]) -> bytes:
    """Return the content of an .npy file."""
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def write_npy_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the head of an .npy file, whose numbers follow row by row."""
    import numpy as np

    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def read_npy(path: Path) -> NDArray[Any]:
    """Map the array of an .npy file from the disk. A file that cannot be read raises a ValueError that says why.

    Nothing is allocated for an array that claims to be larger than its file.
    """
    import numpy as np

    try:
        return np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise
    except NPZ_ERRORS as error:
        raise ValueError(f"{path.name} cannot be read: {error or type(error).__name__}") from error


def read_npz(path: Path, content: bytes | None = None) -> dict[str, NDArray[Any]]:
    """Read all arrays of an .npz file. A file that cannot be read raises a ValueError that says why.

    `content` is that of the file, if it was read already.
    """
    try:
        with zipfile.ZipFile(path if content is None else io.BytesIO(content)) as archive:
            members = archive.infolist()
            for member in members:
                check_packing(member)
            if (size := sum(member.file_size for member in members)) > MOST:
                raise ValueError(f"its arrays take {size:,} bytes, and at most {MOST:,} are read")
            return {member.filename.removesuffix(".npy"): read_member(archive, member) for member in members}
    except NPZ_ERRORS as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error or type(error).__name__}") from error


def check_packing(member: zipfile.ZipInfo) -> None:
    """Refuse a part of a zip file that is neither stored nor deflated.

    Python unpacks a chunk of bzip2 or LZMA as a whole, however large it becomes. NumPy writes no such part.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotImplementedError(f"the part {member.filename!r} is packed in a way that is not read")


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array of an .npz file. An array that claims to be larger than its part of the file is refused.

    NumPy would reserve the memory first, and look how much is there afterwards.
    """
    import numpy as np

    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
        except ValueError as error:
            raise ValueError(f"the part {member.filename!r} is no array of NumPy") from error
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"the array {member.filename!r} is of version {version} of the .npy format")
        shape, is_fortran, dtype = read_header[version](file)
        if dtype.hasobject:
            raise ValueError(f"the array {member.filename!r} holds Python objects, which are not read (allow_pickle)")
        size = math.prod(shape) * dtype.itemsize
        if size > member.file_size or any(side < 0 for side in shape):
            raise ValueError(
                f"the array {member.filename!r} claims to have {size:,} bytes, and the file holds {member.file_size:,}"
            )
        content, found = np.empty(size, np.uint8), 0
        while part := file.read(PART):  # all of it, or its checksum is not compared
            if found + len(part) <= size:
                content[found : found + len(part)] = np.frombuffer(part, np.uint8)
            found += len(part)
        if found != size:
            raise ValueError(f"the array {member.filename!r} has {found:,} bytes, not {size:,}")
    array = content.view(dtype) if dtype.itemsize else np.zeros(math.prod(shape), dtype)
    return array.reshape(shape, order="F" if is_fortran else "C")
