"""A pool holds the images to ask about with their predictions. It is kept beside the answers, so a restart is quick."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from sitar.errors import ConfigError, RunError, SitarError
from sitar.files import read_npy, read_npz, to_npz, write_atomic
from sitar.images.files import Files
from sitar.run_folder import RunFolder, folder_names

VERSION = 2  # of what is kept beside the answers


class _About(TypedDict):
    """This is what is kept beside the predictions."""

    key: str
    runs: list[str]
    classes: list[str]
    names: list[str]
    files: list[str] | None
    stamps: str
    has_pictures: bool
    notes: list[str]
    fitted: list[str]


_ABOUT = TypeAdapter(_About)


@dataclass(frozen=True)
class Pool:
    """A pool holds the images that can be asked about, and the class that each candidate predicts for each of them."""

    runs: list[str]
    """The run of each candidate: that of several where a method has several heads."""
    labels: list[str]
    """The candidates as sentences call them, by the folders that the user has named."""
    classes: tuple[str, ...]
    names: list[str]
    predictions: NDArray[np.int64]
    """The number of a class, (candidate, image)."""
    files: list[Path] | None = None
    pictures: NDArray[np.uint8] | None = None
    """Images (n, channel, height, width) that no file can show. Both are None where there is nothing to show."""
    notes: tuple[str, ...] = ()
    fitted: frozenset[str] = frozenset()
    """The names of images that a candidate was fitted to. They are not among `names`."""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def disagree(self) -> NDArray[np.bool_]:
        """Return whether candidates disagree on each image."""
        return (self.predictions != self.predictions[0]).any(0)

    @cached_property
    def place(self) -> dict[str, int]:
        """Return the number of each image by its name."""
        return {name: place for place, name in enumerate(self.names)}


def read_pool(
    runs: Sequence[Path], images: Path, beside: Path | None = None, device: str = "auto", progress: bool = True
) -> Pool:
    """Return what the candidates predict for the images. It is read from beside the file of answers if it is there.

    Candidates that do not fit each other are refused, and so are images of their test splits.
    """
    folders = _folders(runs)
    key = _key(folders, images)
    column = folders[0].read_config()["data"].get("path_column", "path")
    kept = None if beside is None else _Kept(beside, images, column)
    if kept is not None and (pool := kept.read(key)) is not None:
        named = dict(zip(dict.fromkeys(pool.runs), map(str, runs), strict=True))
        candidates = [named[run] for run in pool.runs]  # it may be another working folder
        return replace(pool, runs=candidates, labels=names_of(candidates))
    from sitar.analysis.ask.candidates import predict  # torch: a restart does without it

    pool = predict(folders, images, device, progress)
    if kept is not None:
        with suppress(OSError):  # a folder that cannot be written to costs time, not answers
            kept.write(key, pool)
    return pool


def names_of(candidates: Sequence[str]) -> list[str]:
    """Name the run of each candidate by its folder. The heads of one run also have their number."""
    runs = list(dict.fromkeys(candidates))
    names = dict(zip(runs, folder_names(runs), strict=True))
    heads = [candidates[:place].count(run) for place, run in enumerate(candidates)]
    return [
        f"{names[run]}, head {head}" if candidates.count(run) > 1 else names[run]
        for run, head in zip(candidates, heads, strict=True)
    ]


def _folders(runs: Sequence[Path]) -> list[RunFolder]:
    folders = [RunFolder(run) for run in runs]
    for folder in folders:
        folder.result()  # raises if the run is not finished
    places = [os.path.realpath(run) for run in runs]
    if twice := [str(run) for i, run in enumerate(runs) if places[i] in places[:i]]:
        raise ConfigError(f"The run {twice[0]!r} is given twice. Give each candidate once.")
    return folders


def _key(folders: Sequence[RunFolder], images: Path) -> str:
    """Return a text that changes when a run or the list of images does, without reading either of them."""
    key = hashlib.sha256(f"{VERSION} {os.path.realpath(images)}".encode(errors="surrogateescape"))
    names = Files([images]).all_names() if images.is_dir() else []
    stamps = [_stamp(images / name) for name in names if name.endswith(".parquet")]  # which may hold the images
    for folder in folders:
        key.update(f"\n{os.path.realpath(folder.path)} {_stamp(folder.model_file)}".encode(errors="surrogateescape"))
    key.update("\n".join([*names, *stamps, _stamp(images)]).encode(errors="surrogateescape"))
    return key.hexdigest()


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return ""
    return "" if path.is_dir() else f"{status.st_size} {status.st_mtime_ns}"


def _stamps(files: Sequence[Path] | None) -> str:
    text = "\n".join(map(_stamp, files or []))
    return hashlib.sha256(text.encode()).hexdigest()


class _Kept:
    """Keeps a pool in files beside the answers. What is damaged or of other images counts as missing."""

    def __init__(self, answers: Path, images: Path, column: str = "path") -> None:
        self.images, self.column = images, column
        self.file = answers.with_name(f".{answers.name}.predictions.npz")
        self.pixels = answers.with_name(f".{answers.name}.pictures.npy")

    def read(self, key: str) -> Pool | None:
        try:
            arrays = read_npz(self.file)
            about = _ABOUT.validate_python(json.loads(str(arrays["about"].item())), strict=True)
            files = None if about["files"] is None else [Path(file) for file in about["files"]]
            if about["key"] != key or about["stamps"] != _stamps(files):
                return None
            pictures = read_npy(self.pixels) if about["has_pictures"] else None
            predictions = arrays["predictions"]
        except (OSError, ValueError, KeyError, RecursionError):
            return None
        shape = len(about["runs"]), len(about["names"])
        fits = predictions.shape == shape and predictions.dtype == np.int64 and shape[0] > 0
        fits = fits and bool(((predictions >= 0) & (predictions < len(about["classes"]))).all())
        fits = fits and (pictures is None or (pictures.ndim == 4 and len(pictures) == shape[1]))
        if not fits or (files is not None and (len(files) != shape[1] or not self._are_ours(files))):
            return None
        return Pool(
            about["runs"], names_of(about["runs"]), tuple(about["classes"]), about["names"], predictions, files,
            pictures, tuple(about["notes"]), frozenset(about["fitted"]),
        )  # fmt: skip

    def _are_ours(self, files: Sequence[Path]) -> bool:
        """Say whether files are images of ours. The page shows no others, whatever is kept beside the answers."""
        found = map(os.path.abspath, files)
        if self.images.is_dir():
            folder = os.path.join(os.path.abspath(self.images), "")
            return all(file.startswith(folder) for file in found)
        from sitar.data.tables import open_table  # here: it imports torch

        try:
            named = open_table(self.images).words(self.column)
        except SitarError:
            return False
        return {os.path.abspath(self.images.parent / name) for name in named}.issuperset(found)

    def write(self, key: str, pool: Pool) -> None:
        about = {
            "key": key, "runs": pool.runs, "classes": pool.classes, "names": pool.names,
            "files": None if pool.files is None else list(map(str, pool.files)), "stamps": _stamps(pool.files),
            "has_pictures": pool.pictures is not None, "notes": pool.notes,
            "fitted": sorted(pool.fitted),
        }  # fmt: skip
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.unlink(missing_ok=True)
        if pool.pictures is not None:
            buffer = io.BytesIO()
            np.save(buffer, pool.pictures)
            write_atomic(self.pixels, buffer.getvalue())
        arrays = {"about": np.array(json.dumps(about)), "predictions": pool.predictions}
        write_atomic(self.file, to_npz(arrays))


def refuse_what_cannot_be_shown(pool: Pool) -> None:
    """Refuse features, since a person cannot look at them."""
    if pool.files is None and pool.pictures is None:
        raise RunError(
            "These candidates were trained on features, and a person cannot look at them. If labels exist already, "
            "write them into a file with the columns image,label, and use `sitar choose`."
        )
