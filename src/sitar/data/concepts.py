"""A concept is given by examples with it and without it: FOLDER/with/*.jpg and FOLDER/without/*.jpg, or a table.

The examples come from elsewhere and need no label. What they show besides the concept should be alike on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sitar.config import NamedConfig
from sitar.data.array_dataset import as_features
from sitar.data.overlap import checksums
from sitar.data.own_data.feature_table import FeaturesConfig, read_features
from sitar.data.own_data.npz import read_arrays
from sitar.data.rows import Stored
from sitar.data.tables import SUFFIXES, open_table
from sitar.errors import ConfigError, DataError
from sitar.files import user_path
from sitar.images.cache import cached_images
from sitar.images.files import Files, is_image

LEAST_EXAMPLES = 20  # on each side: the mean of fewer is mostly chance
COLUMN = "concept"  # of a table of features
WITH, WITHOUT = "with", "without"
YES = {WITH: True, WITHOUT: False, "1": True, "0": False, "true": True, "false": False, "yes": True, "no": False}


class Concept(NamedTuple):
    """Holds inputs as a training split stores them, and whether each has the concept."""

    x: Tensor
    has: NDArray[np.bool_]


def is_concept(name: str) -> bool:
    """Return whether a nuisance is called by the path of a folder or a file."""
    try:
        return user_path(name).exists()
    except (OSError, ValueError, ConfigError):  # no file can be called so
        return False


def read_concept(name: str, config: NamedConfig, train: Stored, columns: Sequence[str] = ()) -> Concept:
    """Read the examples of a concept, in the form of the training inputs `train`, which a table had in `columns`."""
    path = user_path(name)
    concept = _features(path, config, columns) if train.ndim == 2 else _images(path, config, train)
    if concept.x.shape[1:] != train.shape[1:]:
        raise DataError(
            f"The examples of the concept {name!r} have the shape {tuple(concept.x.shape[1:])}, and the training "
            f"inputs {tuple(train.shape[1:])}. Make them in the same way, with the same network."
        )
    for side, count in ((WITH, int(concept.has.sum())), (WITHOUT, int((~concept.has).sum()))):
        if count < LEAST_EXAMPLES:
            raise DataError(
                f"The concept {name!r} has {count} examples {side} it. At least {LEAST_EXAMPLES} on each side are "
                "needed, and a few hundred are better. They need no labels of your classes."
            )
    has = torch.from_numpy(concept.has)
    sides = set(checksums(concept.x[has])), set(checksums(concept.x[~has]))
    if 2 * len(sides[0] & sides[1]) > min(map(len, sides)):
        raise DataError(
            f"The concept {name!r} has the same examples {WITH} it and {WITHOUT} it, or most of them, so hardly "
            "anything varies with it. Put each example on one side."
        )
    return concept


def _images(path: Path, config: NamedConfig, train: Stored) -> Concept:
    """Decode a folder of images in the size and with the channels of the training images."""
    layout = f"a concept is a folder with the folders {WITH!r} and {WITHOUT!r}, and images in both"
    if not path.is_dir():
        raise DataError(f"{str(path)!r} is not a folder: {layout}.")
    missing = [side for side in (WITH, WITHOUT) if not (path / side).is_dir()]
    if missing:
        raise DataError(f"{str(path)!r} has no folder {missing[0]!r}: {layout}.")
    files = Files([path])
    names = sorted(name for name in files.all_names() if is_image(name) and name.split("/")[0] in (WITH, WITHOUT))
    channels, height, width = train.shape[1:]
    form: dict[str, Any] = {"crop_pct": getattr(config, "crop_pct", None), "on_bad": getattr(config, "on_bad", "fail")}
    cached = cached_images("concept", names, files, (height, width), channels=channels, **form)
    good = np.flatnonzero(cached.good)
    x = torch.from_numpy(np.ascontiguousarray(cached.rows(good)))
    has = np.array([names[i].split("/")[0] == WITH for i in good], dtype=bool)
    return Concept(x if train.dtype == torch.uint8 else x.to(train.dtype) / 255, has)


def _features(path: Path, config: NamedConfig, columns: Sequence[str]) -> Concept:
    """Read features from a table with a column `concept`, or from an .npz file with the arrays with and without."""
    if path.suffix.lower() == ".npz":
        arrays = read_arrays(path, [WITH, WITHOUT])
        parts = [as_features(_rows(arrays[side], side, path), side) for side in (WITH, WITHOUT)]
        if parts[0].shape[1] != parts[1].shape[1]:
            raise DataError(
                f"{str(path)!r} has {parts[0].shape[1]} features in {WITH!r} and {parts[1].shape[1]} in {WITHOUT!r}: "
                "they must be as many."
            )
        return Concept(torch.from_numpy(np.concatenate(parts)), np.repeat([True, False], list(map(len, parts))))
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{str(path)!r} cannot hold examples of features: give an .npz file with the arrays {WITH!r} and "
            f"{WITHOUT!r}, or a table ({', '.join(SUFFIXES)}) with your feature columns and a column {COLUMN!r}."
        )
    table = open_table(path)
    table.check_columns([COLUMN])
    words = [word.strip().lower() for word in table.words(COLUMN)]
    if strange := sorted(set(words) - YES.keys()):
        raise DataError(f"{table.title} has the concept {strange[0]!r} in a row. Allowed are {', '.join(YES)}.")
    own = config if isinstance(config, FeaturesConfig) else FeaturesConfig()
    named = own.model_copy(update={"label_column": COLUMN, "split_column": None, "attribute_column": None})
    return Concept(torch.from_numpy(read_features(table, named, columns)), np.array([YES[word] for word in words]))


def _rows(values: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    if values.ndim != 2:
        raise DataError(f"{name!r} of {str(path)!r} has the shape {values.shape}: expected features (n, d).")
    return values
