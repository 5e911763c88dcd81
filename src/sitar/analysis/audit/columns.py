"""Read what is written down of training samples beside their label: the columns of a table, and what files say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.audit.cues import Cue
from sitar.config import NamedConfig
from sitar.data.column_values import LEAST_OF_A_VALUE, column_values, follows, train_files
from sitar.data.image_dataset import ImageDataset
from sitar.data.types import Data
from sitar.images.headers import read_headers
from sitar.registry import DATASETS

LABEL_NAMES = ("label", "class", "target")  # parts of a column's name that say that it is a label


@dataclass
class Columns:
    """Holds the cues that are written down, the columns that follow the label one to one, and why some are left out.

    `twins` are columns that follow the label one to one and are not called a label: the class of each of their values.
    """

    cues: list[Cue] = field(default_factory=list)
    twins: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, words: Sequence[str], y: NDArray[np.int64], classes: Sequence[str]) -> None:
        """Take a column in, or say why not."""
        words = [word.strip() for word in words]
        if len(set(words)) < 2:
            self.left_out[name] = "has one value for all samples"
        elif follows(words, y):
            names = {word: classes[int(label)] for word, label in zip(words, y, strict=True)}
            same = all(word.casefold() == label.casefold() for word, label in names.items())
            if same or any(part in name.casefold() for part in LABEL_NAMES):
                self.left_out[name] = "is the label under another name"
            else:
                self.twins[name] = names
        elif (cue := column_cue(name, words)) is None:
            self.left_out[name] = f"has values of fewer than {LEAST_OF_A_VALUE} samples each, as a name or a number has"
        else:
            self.cues.append(cue)


def written_down(config: NamedConfig, data: Data, index: NDArray[np.int64]) -> Columns:
    """Return what is written down of the training samples at the places `index`."""
    y, found = data.train.y.cpu().numpy()[index], Columns()
    dataset: Any = DATASETS.get(config.name)
    metadata = dataset.metadata(config)
    has_files = issubclass(dataset, ImageDataset)
    if metadata is not None or has_files:
        files = train_files(dataset, config)[index].tolist()
        if metadata is not None:
            place = {file: i for i, file in enumerate(metadata.files)}
            rows = [place[file] for file in files]
            split_by = getattr(config, "split_by", None)
            for name, words in metadata.columns.items():
                if name == split_by and name not in data.attributes:  # a patient with many images tells their label
                    found.left_out[name] = "is what the data is split by"
                else:
                    found.add(name, [words[row] for row in rows], y, data.classes)
        if has_files:
            _add_files(found, dataset.files(config), files, y, data.classes, folders=metadata is not None)
    known = {*found.left_out, *found.twins, *(cue.name for cue in found.cues)}
    for name, values in data.attributes.items():  # of a data set without a table
        if name not in known and data.train_groups is not None:
            attribute = data.train_groups.group.cpu().numpy()[index] - y * len(values)
            found.add(name, [values[i] for i in attribute], y, data.classes)
    return found


def column_cue(name: str, words: Sequence[str]) -> Cue | None:
    """Return a column as numbers, dates as days, or words. None: nearly every sample has a value of its own."""
    column = column_values(words)
    if column is None:
        return None
    return Cue(name, "column", column.values if column.words else column.values[:, None], column.words)


def _add_files(
    found: Columns, files: Any, names: list[str], y: NDArray[np.int64], classes: Sequence[str], folders: bool
) -> None:
    """Add what files say: their kind, bytes and size before they are resized, and in a table the folder they lie in."""
    paths = [PurePosixPath(name) for name in names]
    said = {"file type": [path.suffix.lower().replace(".jpeg", ".jpg") for path in paths]}
    if folders:
        said["folder"] = [str(path.parent) for path in paths]
    for name, words in said.items():
        if len(set(words)) > 1 and (cue := column_cue(name, words)) is not None and not follows(words, y):
            found.cues.append(Cue(name, "file", cue.values, cue.words))
        elif len(set(words)) > 1 and follows(words, y):
            found.add(name, words, y, classes)
    headers = read_headers(files, names)
    if None not in headers:
        size, width, height = np.array(headers, dtype=np.float64).T
        found.cues.append(Cue("file size", "file", np.stack([size, size / (width * height)], 1)))
        if len(np.unique(width)) > 1 or len(np.unique(height)) > 1:
            found.cues.append(Cue("size of the original", "file", np.stack([width, height, width / height], 1)))
