"""MNIST and Fashion-MNIST come as four IDX files each, packed or not. They are verified before use."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sitar.errors import DataError
from sitar.files import user_path

MOST = 2**26  # bytes of a file, unpacked: the largest has 47 million. What is cut here has another checksum


@dataclass(frozen=True)
class IdxFiles:
    """Names the four files of a data set, with the checksum of each, and says what to do where one is wrong."""

    title: str
    sha256: Mapping[str, str]
    """Of each file's content after unpacking, so that gzip and plain files are checked alike: training images and
    labels, then those of the test."""
    places: tuple[str, ...]
    """Folders below the one that a user names, in which the files may lie."""
    advice: str

    @property
    def checksum(self) -> str:
        """Return one checksum of all files."""
        return hashlib.sha256("".join(self.sha256.values()).encode()).hexdigest()

    def find(self, root: str, otherwise: str) -> Path:
        """Return the folder below `root` that has the files. `otherwise` ends the error where there is none."""
        path = user_path(root)
        for folder in (path, *(path / place for place in self.places)):
            if any(folder.joinpath(name).is_file() or folder.joinpath(f"{name}.gz").is_file() for name in self.sha256):
                return folder
        raise DataError(
            f"No {self.title} files in {root!r}. Expected {', '.join(self.sha256)} there or in {self.places[0]}, each "
            f"plain or with .gz; {otherwise}"
        )

    def read(self, folder: Traversable) -> list[NDArray[np.uint8]]:
        """Read all four arrays: images (n, 28, 28) and labels (n,) of the training, then those of the test."""
        return [self._read(folder, name, digest) for name, digest in self.sha256.items()]

    def _read(self, folder: Traversable, name: str, digest: str) -> NDArray[np.uint8]:
        """Read the array in one file. The last byte of its magic number is the number of dimensions."""
        plain, packed = folder.joinpath(name), folder.joinpath(f"{name}.gz")
        file = plain if plain.is_file() else packed
        try:
            content = file.read_bytes()
            if file is packed:
                content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MOST)
        except FileNotFoundError as error:
            raise DataError(
                f"{self.title} file {name!r} (or {name}.gz) is missing in {str(folder)!r}. {self.advice}"
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.title} file {str(file)!r} is damaged ({error}). {self.advice}") from error
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 != digest:
            raise DataError(
                f"{str(file)!r} is not {self.title}'s {name}: sha256 of its content is {sha256[:12]}…, expected "
                f"{digest[:12]}…. {self.advice}"
            )
        dimensions = content[3]
        shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4)
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape.astype(int))
