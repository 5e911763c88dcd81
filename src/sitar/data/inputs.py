"""Read new inputs, without labels, the way a data set stores its own.

Images come as a folder of any depth, as files, as a table with a column of paths, or within Parquet files. Arrays come
as an .npz file. Where the data set is a table of features, such a table is read too, of one file or of many.
"""

from __future__ import annotations

import logging
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from sitar.config import NamedConfig
from sitar.data.array_dataset import as_images, to_float32
from sitar.data.feature_cache import kind_of, marked_blocks
from sitar.data.image_dataset import ImageConfig
from sitar.data.image_shards import ImageShards, holds_images
from sitar.data.own_data.feature_table import FeaturesConfig, input_columns
from sitar.data.own_data.npz import NpzConfig, read_arrays
from sitar.data.rows import Stored, stored_rows
from sitar.data.shards import Shards, open_tables
from sitar.data.tables import SUFFIXES, TableFile, open_table
from sitar.errors import DataError
from sitar.files import user_path
from sitar.images.cache import cached_images
from sitar.images.files import Files, check_paths, is_image, kinds_of, warn_of_others
from sitar.images.parquet import BYTES, IMAGE, row_name
from sitar.images.windows import decoded_windows
from sitar.progress import Watch, unwatched

logger = logging.getLogger(__name__)
ARRAYS, PARQUET = ".npz", ".parquet"
FLAWED = "it has features that are missing, NaN or infinite in {!r}"
Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Form:
    """Says in which form a data set has its inputs: by its settings, and by the shape of one of them.

    Features that lie in a table are made of `columns`, in this order. Without them the settings say which they are.
    """

    config: NamedConfig
    shape: tuple[int, ...]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """Inputs hold new inputs: `x` as the data set stores its own, and a name for each.

    A name is the same in every call: the path of an image below its folder, or the number of a row, counted from 0. An
    image within a Parquet file has the name of this file and the number of its row, and so has a row of one of several
    files. What cannot be read or used is no input. `unreadable` has the names of these and the reason.
    """

    names: list[str]
    x: Stored
    files: list[Path] | None = None
    """Where the image of each input lies; None: the inputs are no image files."""
    unreadable: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Window:
    """A window is a part of the inputs, in their order. `x` has those that can be read, and `unreadable` the others.

    `kept` has what the table of the inputs says of each, in the columns that were asked for.
    """

    names: list[str]
    x: Tensor
    unreadable: dict[str, str] = field(default_factory=dict)
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)


InputsOrWindow = TypeVar("InputsOrWindow", Inputs, Window)


@dataclass(frozen=True)
class _ImageFiles:
    """Says which images are asked about, before any is decoded: by their paths below a folder, or as rows of files."""

    names: list[str]
    files: Files
    folder: Path | None = None
    """None: they are rows of Parquet files."""
    table: TableFile | None = None
    """What lists them; None: no table does."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class _Rows:
    """Holds features of some rows, and why a row cannot be used; empty: it can."""

    names: list[str]
    x: np.ndarray
    reasons: list[str]
    kept: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def part(self, rows: slice) -> _Rows:
        kept = {column: words[rows] for column, words in self.kept.items()}
        return _Rows(self.names[rows], self.x[rows], self.reasons[rows], kept)

    @classmethod
    def join(cls, parts: Sequence[_Rows]) -> _Rows:
        kept = {column: [word for part in parts for word in part.kept[column]] for column in parts[0].kept}
        names = [name for part in parts for name in part.names]
        reasons = [reason for part in parts for reason in part.reasons]
        return cls(names, np.concatenate([part.x for part in parts]), reasons, kept)

    def window(self) -> Window:
        """Return the rows that can be used, and the others as unreadable."""
        good = np.flatnonzero([not reason for reason in self.reasons])
        unreadable = {name: reason for name, reason in zip(self.names, self.reasons, strict=True) if reason}
        return Window(self.names, torch.from_numpy(self.x[good]), unreadable, self.kept)


@dataclass(frozen=True)
class _Features:
    """Holds features before they are read: how many rows there are, and what reads some of them at a time."""

    count: int
    blocks: Callable[[], Iterator[_Rows]]

    def __len__(self) -> int:
        return self.count

    def windows(self, size: int) -> Iterator[Window]:
        """Read the features in windows of one size. The last may be smaller."""
        left: _Rows | None = None
        for block in self.blocks():
            left = block if left is None or not len(left) else _Rows.join([left, block])
            whole = len(left) - len(left) % size
            for start in range(0, whole, size):
                yield left.part(slice(start, start + size)).window()
            left = left.part(slice(whole, None))
        if left is not None and len(left):
            yield left.window()

    def inputs(self) -> Inputs:
        """Read all features that can be used."""
        whole = _Rows.join(list(self.blocks())).window()
        names = [name for name in whole.names if name not in whole.unreadable]
        if whole.unreadable:
            name, reason = next(iter(whole.unreadable.items()))
            if not names:
                raise DataError(f"None of the {len(whole.names):,} inputs can be used, such as {name}: {reason}.")
            logger.warning(
                "%d of %d inputs are left out, such as %s: %s.",
                len(whole.unreadable), len(whole.names), name, reason,
            )  # fmt: skip
        return Inputs(names, whole.x, unreadable=whole.unreadable)


def _table_of_features(table: TableFile, columns: list[str], config: FeaturesConfig, keep: Sequence[str]) -> _Features:
    """Open the features in some columns of a table. Rows of several files have the name of their file."""
    kind = kind_of(table, columns, config.dtype)
    files = table.file_names() if isinstance(table, Shards) and len(table.files) > 1 else [None]

    def blocks() -> Iterator[_Rows]:
        for file, part in zip(files, table.parts(), strict=True):
            words, start = {column: part.words(column) for column in keep}, 0
            for x, flawed in marked_blocks(part, columns, kind):
                rows = range(start, start + len(x))
                names = [str(row) if file is None else row_name(file, row) for row in rows]
                reasons = [FLAWED.format(flawed[row]) if row in flawed else "" for row in range(len(x))]
                kept = {column: list(said[start : rows.stop]) for column, said in words.items()}
                yield _Rows(names, x, reasons, kept)
                start = rows.stop

    return _Features(len(table), blocks)


def read_inputs(
    source: Source,
    form: Form,
    *,
    root: str | os.PathLike[str] | None = None,
    path_column: str | None = None,
    watch: Watch = unwatched,
) -> Inputs:
    """Read new inputs in the form of a data set. The end of the name of `source` says what it is.

    The paths in a table lie below `root`, by default the folder of the table. They stand in `path_column`, by default
    the column of the run's own table, or `path`. Images are decoded once, into the cache.
    """
    found = _find(source, form, root, path_column)
    if isinstance(found, _Features):
        found = found.inputs()
    return _check_shape(_cached(found, form, watch) if isinstance(found, _ImageFiles) else found, form)


def input_windows(
    source: Source,
    form: Form,
    window: int,
    *,
    root: str | os.PathLike[str] | None = None,
    path_column: str | None = None,
    keep: Sequence[str] = (),
) -> tuple[int, Iterator[Window]]:
    """Return how many inputs there are, and read them in windows, as `read_inputs` does.

    A window also has the columns to `keep` of the table that lists the inputs, or that holds them.
    Images are decoded, and tables of features read, when their window comes, and nothing of them is kept. So memory
    does not grow with their number. Arrays are in memory as a whole.
    """
    found = _find(source, form, root, path_column, keep)
    if isinstance(found, _Features):
        return len(found), (_check_shape(window, form) for window in found.windows(window))
    if isinstance(found, _ImageFiles):
        return len(found), _decoded(found, form, window, keep)
    _check_shape(found, form)
    places = range(0, len(found), window)
    return len(found), (Window(found.names[i : i + window], found.x[i : i + window]) for i in places)


def _find(
    source: Source,
    form: Form,
    root: str | os.PathLike[str] | None,
    path_column: str | None,
    keep: Sequence[str] = (),
) -> Inputs | _ImageFiles | _Features:
    """Find out what `source` is. Arrays are read, images are listed, and tables of features are opened."""
    if isinstance(form.config, FeaturesConfig) and (table := _feature_table(source)) is not None:
        columns = input_columns(table, form.config, form.columns)
        found = _table_of_features(table, columns, form.config, keep)
    else:
        found = _find_others(source, form, root, path_column)
        table = found.table if isinstance(found, _ImageFiles) else None
    lists_files = isinstance(found, _ImageFiles) and found.folder is not None and table is not None
    if (root is not None or path_column is not None) and not lists_files:
        raise DataError(
            "A root and a column of paths are for a table that lists image files, and these inputs are none. Leave "
            "them out (--root, --path-column)."
        )
    if keep:
        _check_kept(table, keep)
    return found


def _check_kept(table: TableFile | None, keep: Sequence[str]) -> None:
    """Refuse columns that a table does not have, or whose values are no words and no numbers."""
    if table is None:
        raise DataError("Columns can be kept of a table only, and these inputs are none. Leave --keep out.")
    table.check_columns(keep)
    for column in keep:
        if (kind := table.kind(column)) == BYTES or kind.startswith(("lists", "struct", "map")):
            raise DataError(f"The column {column!r} holds {kind}, and only words and numbers can be kept.")


def _find_others(
    source: Source, form: Form, root: str | os.PathLike[str] | None, path_column: str | None
) -> Inputs | _ImageFiles | _Features:
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    if len(given) == 1 and (folder := user_path(given[0])).is_dir():
        return _folder(folder, form)
    if isinstance(form.config, ImageConfig) and (shards := _image_shards(source, form)) is not None:
        return shards
    paths = _paths(source)
    if all(is_image(path.name) for path in paths):
        return _image_files([path.as_posix() for path in paths], Path(), form)
    if len(paths) > 1:
        kinds = Counter("a folder" if path.is_dir() else path.suffix.lower() or "no ending" for path in paths)
        raise DataError(
            f"Several paths are read as image files, and these are of other kinds too: {_listed(kinds)}. Give image "
            "files only, or one folder, one table or one .npz file."
        )
    if paths[0].suffix.lower() == ARRAYS:
        return _npz(paths[0], form)
    if paths[0].suffix.lower() in SUFFIXES:
        return _table(paths[0], form, root, path_column)
    raise DataError(
        f"{str(paths[0])!r} is no kind of inputs that is read: give a folder of images, image files, a table "
        f"({' or '.join(SUFFIXES)}) with a column of paths, or an {ARRAYS} file."
    )


def _image_shards(source: Source, form: Form) -> _ImageFiles | None:
    """List the rows of the Parquet files that are given, where they hold images. None: it is something else."""
    table = _feature_table(source, (PARQUET,))
    if table is None or not holds_images(table, column := getattr(form.config, "image_column", IMAGE)):
        return None
    shards = ImageShards(table, column)
    return _ImageFiles(shards.rows(), shards.files(), table=shards)


def _feature_table(source: Source, suffixes: tuple[str, ...] = SUFFIXES) -> TableFile | None:
    """Open the table that is given: a file, several, a folder of them, a pattern or a URL. None: it is no table."""
    given = [str(one) for one in ([source] if isinstance(source, str | os.PathLike) else source)]
    if len(given) == 1:
        path = user_path(given[0])
        tables = path.suffix.lower() in suffixes or "://" in given[0] or _has_tables(path, suffixes)
        return open_tables(given[0]) if tables else None
    return Shards(_paths(given), f"{given[0]}, ...") if all(one.lower().endswith(suffixes) for one in given) else None


def _has_tables(folder: Path, suffixes: tuple[str, ...]) -> bool:
    return folder.is_dir() and any(path.suffix.lower() in suffixes for path in folder.rglob("*"))


def _check_shape(inputs: InputsOrWindow, form: Form) -> InputsOrWindow:
    expected = form.shape
    if tuple(inputs.x.shape[1:]) != expected:
        raise DataError(
            f"The inputs have the shape {_shape(inputs.x.shape[1:])}, and this model was trained on "
            f"{_shape(expected)}{', which are channels, height and width' if len(expected) == 3 else ''}."
        )
    return inputs


def _paths(source: Source) -> list[Path]:
    """Return the paths that are given. Refuse those that do not exist, and none at all."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths = [user_path(path) for path in given]
    if not paths:
        raise DataError("No inputs are given: name a folder of images, image files, a table or an .npz file.")
    if absent := [path for path in paths if not path.exists()]:
        raise DataError(f"There is no {str(absent[0])!r}{_others(absent)}, so there are no inputs to read.")
    return paths


def _folder(folder: Path, form: Form) -> _ImageFiles:
    everything = Files([folder]).all_names()
    images = [name for name in everything if is_image(name)]
    if not images:
        is_parquet = any(name.lower().endswith(PARQUET) for name in everything)
        if is_parquet and isinstance(form.config, ImageConfig) and (shards := _image_shards(folder, form)):
            return shards
        there = f" It has other files: {kinds_of(everything)}." if everything else ""
        raise DataError(f"{str(folder)!r} has no images in it, nor in the folders below it.{there}")
    warn_of_others(everything)
    return _image_files(images, folder, form)


def _table(path: Path, form: Form, root: str | os.PathLike[str] | None, path_column: str | None) -> _ImageFiles:
    table = open_table(path)
    column = path_column or getattr(form.config, "path_column", "path")
    below = path.parent if root is None else user_path(root)
    if not below.is_dir():
        raise DataError(f"{str(below)!r} is no folder, and the paths of the table {str(path)!r} lie below it.")
    paths = _column_of_paths(table, column)
    _check_below(paths, below, f"the table {str(path)!r}")
    return replace(_image_files(paths, below, form), table=table)


def _column_of_paths(table: TableFile, column: str) -> list[str]:
    table.check_columns([column])
    words = list(table.words(column))
    if empty := [row for row, word in enumerate(words) if not word.strip()]:
        raise DataError(f"{table.title} has {len(empty):,} rows without a {column}, the first is row {empty[0] + 1:,}.")
    return words


def _check_below(paths: list[str], folder: Path, where: str) -> None:
    """Refuse paths that lead out of the folder, and those that no file has."""
    normal = [posixpath.normpath(path) for path in paths]
    if leaving := [path for path in normal if posixpath.isabs(path) or path.partition("/")[0] == ".."]:
        raise DataError(
            f"In {where} {len(leaving):,} paths lead out of the folder {str(folder)!r}, such as {leaving[0]!r}. Give "
            "paths below it, without '..', or another folder as root."
        )
    check_paths(dict.fromkeys(normal), where)


def _image_files(names: list[str], folder: Path, form: Form) -> _ImageFiles:
    """List images. `names` are their paths below `folder`."""
    if not isinstance(form.config, ImageConfig):
        raise DataError(
            f"This model was trained on arrays of the shape {_shape(form.shape)} ({form.config.name}), and "
            "nothing says how an image file becomes one. Save the inputs as an array: np.savez('inputs.npz', x=...)."
        )
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise DataError(f"{twice[0]!r}{_others(twice)} is named more than once. Name each image once.")
    return _ImageFiles(names, Files([folder]), folder)


def _cached(found: _ImageFiles, form: Form, watch: Watch) -> Inputs:
    """Decode images as the data set of the run decodes its own, into the cache."""
    config, names = cast(ImageConfig, form.config), found.names
    cached = cached_images(
        "inputs", names, found.files, (config.image_size, config.image_size), crop_pct=config.crop_pct,
        channels=config.channels, on_bad="skip", watch=watch("images decoded", len(names)),
    )  # fmt: skip
    if not cached.good.any():
        name, reason = next(iter(cached.bad.items()))
        raise DataError(f"None of the {len(names):,} images can be read, such as {name}: {reason}.")
    cached.warn("new images" if found.folder is None else f"new images in {str(found.folder)!r}")
    good = np.flatnonzero(cached.good)
    kept = [names[place] for place in good]
    x = stored_rows(cached.images, good, cached.sums)
    folder = found.folder
    return Inputs(kept, x, None if folder is None else [folder / name for name in kept], cached.bad)


def _decoded(found: _ImageFiles, form: Form, window: int, keep: Sequence[str]) -> Iterator[Window]:
    """Decode images as the data set of the run decodes its own, window by window."""
    config, start = cast(ImageConfig, form.config), 0
    kept = {} if found.table is None else {column: found.table.words(column) for column in keep}
    decoded = decoded_windows(
        found.names, found.files, (config.image_size, config.image_size), window, crop_pct=config.crop_pct,
        channels=config.channels,
    )  # fmt: skip
    for images, bad in decoded:
        names = found.names[start : start + len(images)]
        good = [place for place in range(len(images)) if place not in bad]
        x = torch.from_numpy(images if not bad else images[good])
        rows = {column: list(words[start : start + len(images)]) for column, words in kept.items()}
        yield Window(names, x, {names[place]: reason for place, reason in bad.items()}, rows)
        start += len(images)


def _npz(path: Path, form: Form) -> Inputs | _Features:
    config = form.config
    key, channels = (config.x_key, config.channels) if isinstance(config, NpzConfig) else ("x", None)
    x = read_arrays(path, [key])[key]
    if x.ndim == 0 or len(x) == 0:
        raise DataError(f"The array {key!r} of {str(path)!r} is empty.")
    if len(form.shape) == 1:
        if x.ndim != 2:
            raise DataError(f"{key!r} has the shape {_shape(x.shape)}: this model reads features (n, d).")
        features = to_float32(x, key)
        flawed = set(np.flatnonzero(~np.isfinite(features).all(axis=1)).tolist())
        reasons = [FLAWED.format(key) if row in flawed else "" for row in range(len(x))]
        rows = _Rows([str(row) for row in range(len(x))], features, reasons)
        return _Features(len(x), lambda: iter([rows]))
    if x.ndim not in (3, 4):
        raise DataError(
            f"{key!r} has the shape {_shape(x.shape)}: this model reads images (n, channel, height, width)."
        )
    if tuple(x.shape[1:]) == form.shape:
        channels = "first"
    return _rows(as_images(x, key, channels))


def _rows(x: np.ndarray) -> Inputs:
    writable = np.require(x, requirements="W")  # torch warns of arrays that are not, such as those of a Parquet file
    return Inputs([str(row) for row in range(len(x))], torch.from_numpy(writable))


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{kind} ({n:,})" for kind, n in kinds.most_common(5))


def _others(names: Sequence[Any]) -> str:
    return f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""
