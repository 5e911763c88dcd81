"""The candidates are finished runs that predict the same images. Those that do not fit each other are refused.

A run of a method with several heads (DivDis, D-BAT, ACE) stands for as many candidates.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sitar.analysis.ask.pool import Pool, names_of
from sitar.analysis.samples import data_checksum, holds_images
from sitar.analysis.thumbnails import pixels
from sitar.data.overlap import checksums, shared_samples
from sitar.errors import ConfigError, DataError
from sitar.evaluation.inputs import Inputs, read_inputs
from sitar.evaluation.trained_model import TrainedModel, load
from sitar.progress import ShownProgress
from sitar.run_folder import RunFolder
from sitar.splits import TEST_SPLITS
from sitar.wording import are, counted


def predict(folders: Sequence[RunFolder], images: Path, device: str = "auto", progress: bool = True) -> Pool:
    """Let each candidate predict each image.

    Candidates that do not fit each other are refused, and so are images of their test splits.
    """
    runs, models = [str(folder.path) for folder in folders], [load(folder, device) for folder in folders]
    classes = models[0].classes
    for run, model in zip(runs, models, strict=True):
        if model.classes != classes:
            raise ConfigError(
                f"Candidates must have the same classes in the same order: {runs[0]!r} has {', '.join(classes)}, and "
                f"{run!r} has {', '.join(model.classes)}."
            )
    read: dict[str, Inputs] = {}  # candidates that store images alike share them
    inputs, notes, fitted = [], [], set[str]()
    with ShownProgress(progress) as shown:
        for run, model in zip(runs, models, strict=True):
            form = f"{data_checksum(model.folder)} {model.config.data!r} {model.feature_columns}"
            if form not in read:
                read[form] = read_inputs(images, model, watch=shown.watch)
                notes += _check_overlap(read[form], model, run)
            inputs.append(read[form])
            learned = _fitted_to(read[form], model)
            notes += _left_out(learned, len(read[form]), run)
            fitted |= set(learned or [])
    names = [name for name in _common(inputs) if name not in fitted]
    if fitted and not names:
        raise DataError(
            "A candidate was fitted to answers about every one of these images, so none is left to judge it by. Bring "
            "more images."
        )
    if bad := {name: reason for one in inputs for name, reason in one.unreadable.items()}:
        name, reason = next(iter(bad.items()))
        notes.append(
            f"{counted(len(bad), 'image')} cannot be read and {are(len(bad))} left out, such as {name}: {reason}."
        )
    inputs = [_only(one, names) for one in inputs]
    heads = [_heads(model) for model in models]
    predictions = np.stack(
        [
            model.logits(one.x, head).argmax(1)
            for model, one, own in zip(models, inputs, heads, strict=True)
            for head in own
        ]
    )
    files = None if inputs[0].files is None else [Path(os.path.abspath(file)) for file in inputs[0].files]
    shape = models[0].task.shape
    in_array = holds_images(models[0]) and (files is None or shape[0] not in (1, 3))  # files of other channels: rare
    pictures = pixels(inputs[0].x[:]).numpy() if in_array else None
    candidates = [run for run, own in zip(runs, heads, strict=True) for _ in own]
    return Pool(
        candidates, names_of(candidates), classes, names, predictions.astype(np.int64), files, pictures,
        tuple(dict.fromkeys(notes)), frozenset(fitted),
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
    try:
        data = model.data
    except DataError:
        return [f"The training data of {run!r} is not here. So nothing tells whether it holds some of these images."]
    notes = []
    for split, shared in shared_samples(inputs.x, inputs.names, data).items():
        if split in TEST_SPLITS:
            raise DataError(
                f"{len(shared):,} of the {len(inputs):,} images are in the split {split!r} of {run!r}, such as "
                f"{shared[0]!r}. Answers about them would choose a model by the images that it is judged by. Bring "
                "other images."
            )
        notes.append(
            f"{len(shared):,} of the images are in the split {split!r} of {run!r}, such as {shared[0]!r}: answers "
            "about them say little about new images."
        )
    return notes


def _fitted_to(inputs: Inputs, model: TrainedModel) -> list[str] | None:
    """Return the images that a refitted run was fitted to, or None if a run of before has not kept which they are."""
    if model.config.refit is None:
        return []
    kept = model.result.get("refit", {}).get("answered")
    if kept is None:
        return None
    answered = set(kept)
    return [name for one, name in zip(checksums(inputs.x), inputs.names, strict=True) if one.hex() in answered]


def _left_out(fitted: list[str] | None, images: int, run: str) -> list[str]:
    """Say what a refit costs the judgement: a model that has learned answers is right about them."""
    if fitted is None:
        return [f"{run!r} has not kept which answers it was fitted to. By those it looks better than it is."]
    if not fitted:
        return []
    return [f"{len(fitted):,} of the {images:,} images are left out: {run!r} was fitted to answers about them."]


def _heads(model: TrainedModel) -> list[int | None]:
    """Return the heads of a model that are candidates of their own. One that has no heads is a candidate itself."""
    return list(range(model.heads)) if model.heads > 1 else [None]
