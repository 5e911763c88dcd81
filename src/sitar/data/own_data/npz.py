"""Your own features or images lie in a NumPy .npz file: `x` are the inputs, `y` the classes, and more is optional.

`np.savez("data.npz", x=embeddings, y=labels)` makes one. Nothing in it is unpickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sitar.data.array_dataset import ArrayConfig, ArrayDataset, as_features, as_images
from sitar.data.from_columns import SampleColumns
from sitar.data.tables import Column
from sitar.data.words import Words
from sitar.errors import DataError
from sitar.files import NPZ_ERRORS, check_packing, read_member
from sitar.memory import check_memory
from sitar.registry import DATASETS, did_you_mean


class NpzConfig(ArrayConfig):
    name: Literal["npz"] = "npz"
    x_key: str = Field(default="x", description="array of features (n, d), or of images (n, h, w[, c] or n, c, h, w)")
    y_key: str = Field(default="y", description="array of classes (n,), whole numbers or words")
    split_key: str | None = Field(default=None, description="array with train, val or test; null: a split is made")
    attribute_key: str | None = Field(default=None, description="array with the shortcut, for groups")
    split_by_key: str | None = Field(default=None, description="array whose values stay on one side, such as a patient")
    channels: Literal["first", "last"] | None = Field(
        default=None, description="axis of the channels of images; null: the one that is at most 4 long"
    )


@DATASETS.register("npz")
class Npz(ArrayDataset):
    Config = NpzConfig
    title = "An .npz file of yours"
    layout = "a NumPy .npz file with the arrays x (features or images) and y (classes)"

    @classmethod
    def read(cls, path: Path, config: NpzConfig) -> tuple[NDArray[Any], SampleColumns]:
        keys = (config.x_key, config.y_key, config.split_key, config.attribute_key, config.split_by_key)
        arrays = read_arrays(path, [key for key in keys if key is not None])
        x = arrays[config.x_key]
        if x.ndim not in (2, 3, 4) or 0 in x.shape[1:]:
            raise DataError(
                f"{config.x_key!r} has the shape {x.shape}: expected features (n, d), or images (n, h, w), "
                "(n, h, w, c) or (n, c, h, w)."
            )

        def column(key: str | None) -> Column | None:
            return None if key is None else _column(arrays[key], key, len(x), config.x_key)

        label = _column(arrays[config.y_key], config.y_key, len(x), config.x_key)
        inputs = as_features(x, config.x_key) if x.ndim == 2 else as_images(x, config.x_key, config.channels)
        rest = column(config.split_key), column(config.attribute_key), column(config.split_by_key)
        return inputs, SampleColumns(label, *rest)


def read_arrays(path: Path, keys: list[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays that are asked for. Nothing is unpickled."""
    if path.exists() and not path.is_file():  # a pipe would wait for somebody to write into it
        raise DataError(f"{str(path)!r} cannot be read: it is not a regular file, but a folder, a pipe or a device.")
    with path.open("rb") as opened:
        try:
            file = np.load(opened, allow_pickle=False)
        except NPZ_ERRORS as error:
            raise DataError(f"{str(path)!r} cannot be read as an .npz file: it is of another kind, or cut.") from error
        if isinstance(file, np.ndarray):
            raise DataError(f"{str(path)!r} is one array. Save inputs and classes: np.savez(file, x=..., y=...).")
        if missing := [key for key in keys if key not in file.files]:
            raise DataError(
                f"{str(path)!r} has no array {missing[0]!r}.{did_you_mean(missing[0], file.files)} "
                f"It has: {', '.join(file.files) or 'none'}."
            )
        return {key: _array(file, key, path) for key in keys}


def _array(file: Any, key: str, path: Path) -> NDArray[Any]:
    try:
        member = file.zip.getinfo(key if key in file.zip.namelist() else f"{key}.npy")
        check_packing(member)
        check_memory(member.file_size, f"The array {key!r} of {str(path)!r} is read into memory", "Save fewer samples.")
        return read_member(file.zip, member)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise DataError(f"The array {key!r} of {str(path)!r} cannot be read: {error}.") from error
        raise DataError(
            f"The array {key!r} of {str(path)!r} holds Python objects, which are not read, since they can run code. "
            "Save numbers, or words with .astype(str)."
        ) from error
    except NPZ_ERRORS as error:
        raise DataError(f"The array {key!r} of {str(path)!r} is damaged: {error}.") from error


def _column(values: NDArray[Any], key: str, n: int, x_key: str) -> Column:
    if values.ndim != 1:
        raise DataError(f"{key!r} has the shape {values.shape}: expected ({n},), one value for each row of {x_key!r}.")
    if len(values) != n:
        raise DataError(f"{key!r} has {len(values):,} values and {x_key!r} has {n:,} rows: they must be as many.")
    if values.dtype.kind not in "iubU":
        raise DataError(
            f"{key!r} holds {values.dtype}: expected whole numbers or words. Convert it with .astype(int) or "
            ".astype(str)."
        )
    words = Words.of(values.astype(str).tolist())
    if len(strange := words.rows(lambda word: not _is_text(word))):
        raise DataError(
            f"{len(strange):,} of {n:,} words of {key!r} are no text that a file can hold (half a character), such as "
            f"{words[strange[0]]!r} of sample {strange[0] + 1:,}. Write them anew."
        )
    return Column(key, words)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
