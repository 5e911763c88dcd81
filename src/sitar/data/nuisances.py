"""Nuisances are what a user asks a model to ignore: properties of the pixels, columns of the data, or concepts.

A column loses its class means, so that only what varies within classes counts: what follows the label in the training
data need not be the column. A property of the pixels is kept as it is, because it cannot be the label itself.

A bank (`BANK`) consists of properties that no user has named. A method that asks for it decides what to do with it.

Each name in `method.nuisances` is a column, else the path of a concept, else a property. A nuisance that has one value,
or that is the label, is refused: nothing in the training data varies with it while the label stays. A concept is known
to be the label if its examples are samples of this data, and no class is on both sides.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sitar.config import NamedConfig
from sitar.data.column_values import column_values, train_files
from sitar.data.concepts import Concept, is_concept, read_concept
from sitar.data.image_dataset import ImageDataset
from sitar.data.image_properties import named_properties
from sitar.data.overlap import known_classes, shared_samples
from sitar.data.types import Data, Nuisance, Nuisances
from sitar.errors import ConfigError, DataError
from sitar.functional.nuisance import within_classes
from sitar.images.headers import read_headers
from sitar.registry import DATASETS, did_you_mean
from sitar.splits import TEST_SPLITS

logger = logging.getLogger(__name__)
IMAGE_SIZE = "image_size"
BANK = ("mean_colour", "brightness", "contrast", "blur", "border", "background", IMAGE_SIZE)
OTHER_NAMES = {"blur": "sharpness", "mean_color": "mean colour"}
CONSTANT = 1e-9  # a deviation below which a number is the same for all samples
PARTLY = 0.5  # of the examples of a concept, that change class with the side: it is the label in part
WHAT_TO_DO = (
    "Bring samples that tell the two apart, give a concept with examples from elsewhere, or ask a person about a few "
    "images (`sitar ask`)."
)


def read_nuisances(names: Sequence[str], config: NamedConfig, data: Data) -> Nuisances:
    """Return the nuisances of these names: numbers for every training sample, and examples of concepts."""
    y = data.train.y.cpu()
    columns = _columns(config, data)
    found, numbers, examples = [], [], []
    properties = None
    for name in names:
        if name in columns:
            values = _column(name, columns[name], data)
            values = within_classes(torch.from_numpy(values), y, len(data.classes)).numpy()
            found.append(_described(name, "column", values, name in data.attributes))
        elif is_concept(name):
            concept = read_concept(name, config, data.train.x, data.feature_columns)
            examples.append(concept)
            _refuse_the_label(name, concept, data)
            _refuse_test_samples(name, concept, data)
            about = np.concatenate([concept.x.flatten(1).numpy(), concept.has[:, None]], 1)  # and on which side each is
            found.append(_described(name, "concept", about, False, len(concept.has)))
            continue
        else:
            if properties is None and data.train.x.ndim == 4:
                properties = _properties(config, data, sizes=IMAGE_SIZE in names)
            values = _property(name, properties, columns, config, data)
            found.append(_described(name, "property", values, False))
            _warn_if_it_tells_all(name, values, y.numpy())
        numbers.append(_standardised(name, values))
    values = np.concatenate(numbers, 1) if numbers else np.zeros((len(y), 0))
    contrasts = torch.zeros(len(examples), sum(len(concept.has) for concept in examples))
    start = 0
    for row, concept in zip(contrasts, examples, strict=True):
        has = torch.from_numpy(concept.has)
        row[start : start + len(has)] = torch.where(has, 1 / has.sum(), -1 / (~has).sum())
        start += len(has)
    shown = torch.cat([concept.x for concept in examples]) if examples else data.train.x[:0]
    return Nuisances(tuple(found), torch.from_numpy(values).float(), shown, contrasts)


def read_bank(config: NamedConfig, data: Data) -> Nuisances:
    """Return the properties of `BANK` that the training images have, and that differ between them."""
    measured = _known(_properties(config, data, sizes=True))
    found = {name: measured[asked] for name in BANK if (asked := _asked(name)) in measured}
    found = {name: values for name, values in found.items() if _varies(values).any()}
    about = tuple(_described(name, "property", values, False) for name, values in found.items())
    values = [np.zeros((len(data.train), 0)), *(_standardised(name, values) for name, values in found.items())]
    numbers = torch.from_numpy(np.concatenate(values, 1)).float()
    return Nuisances(about, numbers, data.train.x[:0], torch.zeros(0, 0), told=False)


def _columns(config: NamedConfig, data: Data) -> dict[str, Sequence[str]]:
    """Return the words of every column that is written down of the training samples, the attribute included."""
    dataset: Any = DATASETS.get(config.name)
    columns: dict[str, Sequence[str]] = {}
    groups = data.train_groups
    if groups is not None:
        for name, values in data.attributes.items():
            place = (groups.group - data.train.y * len(values)).tolist()
            columns[name] = [values[i] for i in place]
    if (metadata := dataset.metadata(config)) is not None:
        place = {file: i for i, file in enumerate(metadata.files)}
        rows = [place[file] for file in train_files(dataset, config).tolist()]
        columns |= {name: [words[row] for row in rows] for name, words in metadata.columns.items()}
    return columns


def _column(name: str, words: Sequence[str], data: Data) -> NDArray[np.float64]:
    """Return a column as numbers (sample, number): itself, or one for each word. One that is the label is refused."""
    words = [word.strip() for word in words]
    if len(set(words)) < 2:
        raise DataError(
            f"The nuisance {name!r} has one value for all training samples, {words[0]!r}, so nothing varies with it. "
            "Leave it out of method.nuisances."
        )
    y = data.train.y.cpu().numpy()
    column = column_values(words)
    if column is None:
        raise DataError(
            f"The nuisance {name!r} has another value for nearly every training sample, as a name has, so nothing can "
            "be learned from it. Leave it out of method.nuisances."
        )
    if _tells_all(column.values, y, bool(column.words)):
        raise DataError(
            f"{name} equals the label in the training data: each of its values occurs in one class only. Noise along "
            f"it would be noise along the label. {WHAT_TO_DO}"
        )
    if column.words:
        return np.eye(len(column.words))[column.values]
    return np.nan_to_num(column.values, nan=float(np.nanmean(column.values)))[:, None]


def _tells_all(values: NDArray[Any], y: NDArray[np.int64], are_words: bool) -> bool:
    """Return whether the class follows from the value for every sample: by the word, or by thresholds of a number."""
    if are_words:
        return len(set(zip(values.tolist(), y.tolist(), strict=True))) == len(np.unique(values))
    known = ~np.isnan(values)
    ranges = sorted((values[known & (y == c)].min(), values[known & (y == c)].max()) for c in np.unique(y[known]))
    return len(ranges) > 1 and all(low[1] < high[0] for low, high in pairwise(ranges))


def _properties(config: NamedConfig, data: Data, sizes: bool) -> dict[str, NDArray[np.float64]]:
    """Measure the training images. Their size is that of the files, before they are resized."""
    return named_properties(data.train.x) | (_sizes(config, data) if sizes else {})


def _sizes(config: NamedConfig, data: Data) -> dict[str, NDArray[np.float64]]:
    """Return width, height and their ratio, by the name of the property. It is empty where a file does not say them."""
    dataset: Any = DATASETS.get(config.name)
    if not issubclass(dataset, ImageDataset):
        return {}
    headers = read_headers(dataset.files(config), train_files(dataset, config).tolist())
    if None in headers:
        return {}
    _, width, height = np.array(headers, dtype=np.float64).T
    return {IMAGE_SIZE: np.stack([width, height, width / height], 1)}


def _property(
    name: str, properties: dict[str, NDArray[np.float64]] | None, columns: Any, config: NamedConfig, data: Data
) -> NDArray[np.float64]:
    known = {} if properties is None else _known(properties)
    if (asked := _asked(name)) in known:
        return known[asked]
    if known:
        known |= _sizes(config, data)  # which are measured only where they are asked for
    shown = [*known, *(other for other, of in OTHER_NAMES.items() if of.replace(" ", "_") in known)]
    of_data = f"Columns of this data: {', '.join(columns) or 'none'}."
    of_pixels = (
        f"Properties of its images: {', '.join(shown)}." if known else "It holds features: no pixels to measure."
    )
    raise ConfigError(
        f"method.nuisances has {name!r}, which is no column, property, or existing file or folder."
        f"{did_you_mean(name, [*columns, *shown])} {of_data} {of_pixels} A concept is a folder with the folders with/ "
        "and without/."
    )


def _known(properties: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    return {key.replace(" ", "_"): value for key, value in properties.items()}


def _asked(name: str) -> str:
    return OTHER_NAMES.get(name, name).replace(" ", "_")


def _varies(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Say of each number whether it differs between samples."""
    return values.std(0) > CONSTANT


def _standardised(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the numbers with mean 0 and deviation 1. Those that are the same for all samples are left out."""
    spread, kept = values.std(0), _varies(values)
    if not kept.any():
        raise DataError(
            f"The nuisance {name!r} has one value for all training samples, so nothing varies with it. Leave it out of "
            "method.nuisances."
        )
    return (values[:, kept] - values[:, kept].mean(0)) / spread[kept]


def _warn_if_it_tells_all(name: str, values: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    """Warn of a property of the pixels that tells the label for certain: then only the user knows that it is not it."""
    if any(_tells_all(column, y, are_words=False) for column in values.T):
        logger.warning(
            "%s tells the label for certain in the training data. Only you know whether the label is something else.",
            name,
        )


def _refuse_the_label(name: str, concept: Concept, data: Data) -> None:
    """Refuse a concept whose sides are samples of different classes. Warn of one whose sides are so in part.

    Only examples that this data holds have a class. Where they are less than half of a side, nothing is known.
    """
    known, shares = known_classes(concept.x, data), []
    for side in (concept.has, ~concept.has):
        classes = known[side & (known >= 0)]
        if 2 * len(classes) < side.sum():
            return
        shares.append(np.bincount(classes, minlength=len(data.classes)) / len(classes))
    on_both, apart = bool((shares[0] * shares[1]).any()), float(np.abs(shares[0] - shares[1]).sum() / 2)
    of_which, of_others = (
        ", ".join(f"{data.classes[c]!r} ({share[c]:.0%})" for c in np.flatnonzero(share)) for share in shares
    )
    found = f"Examples with it are samples of {of_which}, and those without it of {of_others}."
    if not on_both:
        raise DataError(
            f"The concept {name!r} equals the label in this data: no class is on both sides. {found} Noise along it "
            f"would be noise along the label. Take samples of every class for both sides. {WHAT_TO_DO}"
        )
    if apart >= PARTLY:
        logger.warning(
            "The concept %r is the label in part: its sides have the classes in other shares. %s Take as many of each "
            "class for both sides.",
            name, found,
        )  # fmt: skip


def _refuse_test_samples(name: str, concept: Concept, data: Data) -> None:
    """Refuse examples that a model is judged by."""
    numbers = [f"number {i + 1}" for i in range(len(concept.x))]
    for split, shared in shared_samples(concept.x, numbers, data).items():
        if split in TEST_SPLITS:
            raise DataError(
                f"The concept {name!r}: {len(shared):,} of its {len(numbers):,} examples are in the split {split!r}. A "
                "model is judged by that split, so it must not learn from it. Take other examples."
            )


def _described(name: str, kind: str, values: NDArray[Any], is_it: bool, size: int | None = None) -> Nuisance:
    checksum = hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).hexdigest()
    return Nuisance(name, kind, values.shape[1] if size is None else size, is_it, checksum)
