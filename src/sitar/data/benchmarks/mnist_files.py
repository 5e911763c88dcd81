"""MNIST's four original files are embedded in the package, or in a folder of yours. They are verified before use."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sitar.errors import DataError

# sha256 of each file's content after unpacking, so that gzip and plain files are checked alike
FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
CHECKSUM = hashlib.sha256("".join(FILES.values()).encode()).hexdigest()


@dataclass(frozen=True)
class MNIST:
    """Holds digits as (n, 28, 28) uint8, and their values: 60,000 of the training files, 10,000 of the test files."""

    train_images: NDArray[np.uint8]
    train_digits: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_digits: NDArray[np.uint8]

    @property
    def images(self) -> NDArray[np.uint8]:
        """Return all 70,000 images, those of the test files last."""
        return np.concatenate([self.train_images, self.test_images])

    @property
    def digits(self) -> NDArray[np.uint8]:
        """Return all 70,000 values, those of the test files last."""
        return np.concatenate([self.train_digits, self.test_digits])


def load_mnist(root: str | None = None) -> MNIST:
    """Read MNIST from `root` (the four files, packed or not, also under MNIST/raw), or from the package itself."""
    folder = _folder(root)
    images, digits, test_images, test_digits = (_read(folder, name, digest) for name, digest in FILES.items())
    return MNIST(images, digits, test_images, test_digits)


def _folder(root: str | None) -> Traversable:
    if root is None:
        return resources.files("sitar.data.benchmarks").joinpath("mnist")
    path = Path(root).expanduser()
    for folder in (path, path / "MNIST" / "raw", path / "raw"):
        if any(folder.joinpath(name).is_file() or folder.joinpath(f"{name}.gz").is_file() for name in FILES):
            return folder
    raise DataError(
        f"No MNIST files in {root!r}. Expected {', '.join(FILES)} there or in MNIST/raw, each plain or with .gz; "
        "leave data.root out to use the copy inside the package."
    )


def _read(folder: Traversable, name: str, digest: str) -> NDArray[np.uint8]:
    """Read the array in one IDX file. The last byte of its magic number is the number of dimensions."""
    plain, packed = folder.joinpath(name), folder.joinpath(f"{name}.gz")
    file = plain if plain.is_file() else packed
    advice = "Replace it by the original file, or leave data.root out to use the copy inside the package."
    try:
        content = file.read_bytes()
        if file is packed:
            content = gzip.decompress(content)
    except FileNotFoundError as error:
        raise DataError(f"MNIST file {name!r} (or {name}.gz) is missing in {str(folder)!r}. {advice}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"MNIST file {str(file)!r} is damaged ({error}). {advice}") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != digest:
        raise DataError(
            f"{str(file)!r} is not MNIST's {name}: sha256 of its content is {sha256[:12]}…, expected {digest[:12]}…. "
            f"{advice}"
        )
    dimensions = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape.astype(int))
