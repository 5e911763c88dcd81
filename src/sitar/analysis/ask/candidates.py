"""The candidates are finished runs. Each predicts all images once, and the predictions are kept beside the answers."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sitar.analysis.samples import holds_images
from sitar.analysis.thumbnails import pixels
from sitar.errors import ConfigError, DataError, RunError
from sitar.evaluation.inputs import Inputs, read_inputs
from sitar.evaluation.trained_model import TrainedModel, load
from sitar.files import read_npz, to_npz, write_atomic
from sitar.images.files import Files
from sitar.progress import ShownProgress
from sitar.run_folder import RunFolder
from sitar.splits import TEST_SPLITS

VERSION = 1  # of what is kept beside the answers


@dataclass(frozen=True)
class Pool:
    """A pool holds the images that can be asked about, and the class that each candidate predicts for each of them."""

    runs: list[str]
    labels: list[str]
    """The candidates as sentences call them."""
    classes: tuple[str, ...]
    names: list[str]
    predictions: NDArray[np.int64]
    """The number of a class, (candidate, image)."""
    files: list[Path] | None = None
    pictures: NDArray[np.uint8] | None = None
    """Images (n, channel, height, width) that no file can show. Both are None where there is nothing to show."""
    notes: tuple[str, ...] = ()

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
    kept = None if beside is None else _Kept(beside)
    if kept is not None and (pool := kept.read(key)) is not None:
        return pool
    pool = _predict([load(folder, device) for folder in folders], list(map(str, runs)), images, progress)
    if kept is not None:
        with suppress(OSError):  # a folder that cannot be written to costs time, not answers
            kept.write(key, pool)
    return pool


def _folders(runs: Sequence[Path]) -> list[RunFolder]:
    folders = [RunFolder(run) for run in runs]
    for folder in folders:
        folder.result()  # raises if the run is not finished
    places = [os.path.realpath(run) for run in runs]
    if twice := [str(run) for i, run in enumerate(runs) if places[i] in places[:i]]:
        raise ConfigError(f"The run {twice[0]!r} is given twice. Give each candidate once.")
    return folders


def _predict(models: Sequence[TrainedModel], runs: list[str], images: Path, progress: bool) -> Pool:
    classes = models[0].classes
    for run, model in zip(runs, models, strict=True):
        if model.classes != classes:
            raise ConfigError(
                f"Candidates must have the same classes in the same order: {runs[0]!r} has {', '.join(classes)}, and "
                f"{run!r} has {', '.join(model.classes)}."
            )
    read: dict[str, Inputs] = {}  # candidates that store images alike share them
    inputs, notes = [], []
    with ShownProgress(progress) as shown:
        for run, model in zip(runs, models, strict=True):
            form = f"{model.data.checksum} {model.config.data!r}"
            if form not in read:
                read[form] = read_inputs(images, model, watch=shown.watch)
                notes += _check_overlap(read[form], model, run)
            inputs.append(read[form])
    names = _common(inputs)
    if bad := {name: reason for one in inputs for name, reason in one.unreadable.items()}:
        name, reason = next(iter(bad.items()))
        notes.append(f"{len(bad):,} images cannot be read and are left out, such as {name}: {reason}.")
    inputs = [_only(one, names) for one in inputs]
    predictions = np.stack([model.predict(one.x) for model, one in zip(models, inputs, strict=True)])
    files = None if inputs[0].files is None else [Path(os.path.abspath(file)) for file in inputs[0].files]
    shape = models[0].data.task.shape
    in_array = holds_images(models[0]) and (files is None or shape[0] not in (1, 3))  # files of other channels: rare
    pictures = pixels(inputs[0].x).numpy() if in_array else None
    return Pool(
        runs, _labels(models, runs), classes, names, predictions.astype(np.int64), files, pictures,
        tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _common(inputs: Sequence[Inputs]) -> list[str]:
    """Return the images that every candidate can read."""
    shared = set(inputs[0].names).intersection(*(one.names for one in inputs[1:]))
    names = [name for name in inputs[0].names if name in shared]
    if strange := [name for name in names if "\n" in name or "\r" in name]:
        raise DataError(f"The name {strange[0]!r} has a line break, and answers are lines of a file. Rename it.")
    return names


def _only(inputs: Inputs, names: list[str]) -> Inputs:
    """Return the inputs with these names."""
    if inputs.names == names:
        return inputs
    places = {name: place for place, name in enumerate(inputs.names)}
    rows = [places[name] for name in names]
    return Inputs(names, inputs.x[rows], None if inputs.files is None else [inputs.files[row] for row in rows])


def _check_overlap(inputs: Inputs, model: TrainedModel, run: str) -> list[str]:
    """Refuse images of the test splits: answers about them would choose the model by what it is judged by.

    Return a sentence about images that the model was trained or selected on.
    """
    found = {checksum: name for name, checksum in zip(inputs.names, _checksums(inputs.x), strict=True)}
    splits = {"train": model.data.train.x, **{name: split.x for name, split in model.data.evaluation.items()}}
    notes = []
    for split, x in splits.items():
        shared = [found[checksum] for checksum in _checksums(x) if checksum in found]
        if shared and split in TEST_SPLITS:
            raise DataError(
                f"{len(shared):,} of the {len(inputs):,} images are in the split {split!r} of {run!r}, such as "
                f"{shared[0]!r}. Answers about them would choose a model by the images that it is judged by. Bring "
                "other images."
            )
        if shared:
            notes.append(
                f"{len(shared):,} of the images are in the split {split!r} of {run!r}, such as {shared[0]!r}: answers "
                "about them say little about new images."
            )
    return notes


def _checksums(x: torch.Tensor) -> Iterable[bytes]:
    for row in x:
        yield hashlib.blake2b(row.contiguous().numpy().tobytes(), digest_size=16).digest()


def _labels(models: Sequence[TrainedModel], runs: list[str]) -> list[str]:
    """Return short names that tell the candidates apart: the method of the preset, its seed too, or else the folder."""
    methods = [model.config.preset.partition("/")[2] or model.config.method.name for model in models]
    seeded = [f"{method}, seed {model.config.seed}" for method, model in zip(methods, models, strict=True)]
    return next((names for names in (methods, seeded) if len(set(names)) == len(names)), runs)


def _key(folders: Sequence[RunFolder], images: Path) -> str:
    """Return a text that changes when a run or the list of images does, without reading either of them."""
    key = hashlib.sha256(f"{VERSION} {os.path.realpath(images)}".encode(errors="surrogateescape"))
    names = Files([images]).all_names() if images.is_dir() else []
    for folder in folders:
        key.update(f"\n{os.path.realpath(folder.path)} {_stamp(folder.model_file)}".encode(errors="surrogateescape"))
    key.update("\n".join([*names, _stamp(images)]).encode(errors="surrogateescape"))
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

    def __init__(self, answers: Path) -> None:
        self.file = answers.with_name(f".{answers.name}.predictions.npz")
        self.pixels = answers.with_name(f".{answers.name}.pictures.npy")

    def read(self, key: str) -> Pool | None:
        try:
            arrays = read_npz(self.file)
            about: dict[str, Any] = json.loads(arrays["about"].item())
            if about["key"] != key:
                return None
            files = None if about["files"] is None else [Path(file) for file in about["files"]]
            if about["stamps"] != _stamps(files):
                return None
            pictures = np.load(self.pixels, mmap_mode="r", allow_pickle=False) if about["has_pictures"] else None
        except (OSError, ValueError, KeyError):
            return None
        return Pool(
            about["runs"], about["labels"], tuple(about["classes"]), about["names"], arrays["predictions"], files,
            pictures, tuple(about["notes"]),
        )  # fmt: skip

    def write(self, key: str, pool: Pool) -> None:
        about = {
            "key": key, "runs": pool.runs, "labels": pool.labels, "classes": pool.classes, "names": pool.names,
            "files": None if pool.files is None else list(map(str, pool.files)), "stamps": _stamps(pool.files),
            "has_pictures": pool.pictures is not None, "notes": pool.notes,
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
