"""MNIST's four original files are embedded in the package, or in a folder of yours. They are verified before use."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from sitar.data.benchmarks.idx_files import IdxFiles

# sha256 of each file's content after unpacking, so that gzip and plain files are checked alike
FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
PACKAGE = "leave data.root out to use the copy inside the package."
ORIGINAL = IdxFiles("MNIST", FILES, ("MNIST/raw", "raw"), f"Replace it by the original file, or {PACKAGE}")
CHECKSUM = ORIGINAL.checksum


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
    if root is None:
        return MNIST(*ORIGINAL.read(resources.files("sitar.data.benchmarks").joinpath("mnist")))
    return MNIST(*ORIGINAL.read(ORIGINAL.find(root, PACKAGE)))
