"""Checksums tell a damaged file from a sound one: what was written is what is read, or the file is named.

They find accidents, such as a bit that a disk has lost. They are no signature: whoever can write a file can also write
its checksum (SECURITY.md).
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sitar.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEAL = "sha256"
BLOCK = 2**16  # bytes of narrow rows that have one checksum together


def checksum(content: bytes) -> str:
    """Return the SHA-256 of a file. Most processors have instructions for it."""
    return hashlib.sha256(content).hexdigest()


def checksum_of(file: Path) -> str:
    """Return the same of a file on the disk, however large it is."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def sums_line(name: str, digest: str) -> bytes:
    """Return a line for `sha256sum -c`. Names with a backslash or a line break are written as this program does."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n".encode("utf-8", "surrogateescape")


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a JSON file with a checksum of them, its last value."""
    return {**values, SEAL: _seal(values)}


def unsealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return such values without their checksum. A ValueError says that they are not what was written."""
    rest = {key: value for key, value in values.items() if key != SEAL}
    if values.get(SEAL) != _seal(rest):
        raise ValueError("it is not what was written, by its own checksum")
    return rest


def _seal(values: Mapping[str, Any]) -> str:
    return checksum(json.dumps(values, sort_keys=True).encode())


def check_zip(content: bytes) -> None:
    """Compare every part of a zip file with the CRC-32 that was written with it. A ValueError names one that differs.

    A checkpoint of torch is a zip file. So it is checked when it is read, and writing it costs nothing more.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("a part of it is compressed, and torch compresses none")  # it could fill the memory
            damaged = archive.testzip()
    except Exception as error:  # it is not specified what a damaged zip file raises
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if damaged is not None:
        raise ValueError(f"the checksum of its part {damaged!r} is wrong")


class RowSums:
    """Holds the CRC-32 of every row of an array on the disk. A row is checked when this process first reads it."""

    def __init__(self, sums: NDArray[np.uint32], cache: Path) -> None:
        import numpy as np

        self.sums, self.cache = sums, cache
        self._checked = np.zeros(len(sums), np.bool_)

    def check(self, places: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Compare rows, which were copied from these places, with their checksums."""
        import numpy as np

        places = np.atleast_1d(places)
        new = np.flatnonzero(~self._checked[places])
        if not len(new):
            return
        rows = rows.reshape(len(places), -1)
        found = row_sums(rows if len(new) == len(places) else rows[new])
        if (wrong := places[new][found != self.sums[places[new]]]).size:
            raise DataError(
                f"The cache {str(self.cache)!r} is damaged: {len(wrong):,} of {len(new):,} rows that were read, such "
                f"as row {int(wrong[0])}, are not what was written. Remove it: it will be made again."
            )
        self._checked[places[new]] = True


def row_sums(rows: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each row."""
    import numpy as np

    if not rows.size:
        return np.zeros(len(rows), np.uint32)
    content, width = np.ascontiguousarray(rows).data.cast("B"), rows.nbytes // len(rows)
    return np.array([zlib.crc32(content[i : i + width]) for i in range(0, len(content), width)], np.uint32)


class BlockSums:
    """Holds the CRC-32 of every block of rows of an array on the disk.

    Rows of features are narrow: a checksum of each would take longer than to read them. A block is checked, as a whole,
    when this process first reads a row of it.
    """

    def __init__(self, sums: NDArray[np.uint32], array: NDArray[Any], cache: Path) -> None:
        import numpy as np

        self.sums, self.array, self.cache = sums, array, cache
        self.rows = rows_in_block(array)
        self._checked = np.zeros(len(sums), np.bool_)

    def check(self, places: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Compare the blocks that hold these places with their checksums."""
        import numpy as np

        blocks = np.atleast_1d(places) // self.rows
        new = np.unique(blocks[~self._checked[blocks]]).tolist()
        wrong = [block for block in new if _block_sum(self.array, block, self.rows) != self.sums[block]]
        if wrong:
            first, last = wrong[0] * self.rows, min((wrong[0] + 1) * self.rows, len(self.array)) - 1
            raise DataError(
                f"The cache {str(self.cache)!r} is damaged: {len(wrong):,} of {len(new):,} blocks that were read, such "
                f"as rows {first} to {last}, are not what was written. Remove it: it will be made again."
            )
        self._checked[new] = True


def rows_in_block(array: NDArray[Any]) -> int:
    """Return how many rows have one checksum together: as many as fit into a block, and at least one."""
    return max(1, BLOCK // max(1, array[:1].nbytes))


def _block_sum(array: NDArray[Any], block: int, rows: int) -> int:
    return zlib.crc32(array[block * rows : (block + 1) * rows].data.cast("B"))


class BlockSummer:
    """Computes the checksums of blocks while rows are written, however many at a time."""

    def __init__(self) -> None:
        self._sums: list[int] = []
        self._sum = self._rows = 0  # of the block that is not full yet

    def add(self, rows: NDArray[Any]) -> None:
        size, start = rows_in_block(rows), 0
        while start < len(rows):
            part = rows[start : start + size - self._rows]
            self._sum, self._rows = zlib.crc32(part.data.cast("B"), self._sum), self._rows + len(part)
            start += len(part)
            if self._rows == size:
                self._close()

    def _close(self) -> None:
        self._sums.append(self._sum)
        self._sum = self._rows = 0

    def sums(self) -> NDArray[np.uint32]:
        """Return the checksums of all rows."""
        import numpy as np

        if self._rows:
            self._close()
        return np.array(self._sums, np.uint32)


def kept_sums(sums: NDArray[np.uint32], array: NDArray[Any], cache: Path) -> RowSums | BlockSums:
    """Return the checksums that lie beside an array: of its blocks, or of its rows where an earlier release wrote them.

    Where a block has one row, or the array has, these are the same. A ValueError says that they are neither.
    """
    if sums.shape == (-(-len(array) // rows_in_block(array)),):
        return BlockSums(sums, array, cache)
    if sums.shape == array.shape[:1]:
        return RowSums(sums, cache)
    raise ValueError(f"its checksums have the shape {sums.shape}")
