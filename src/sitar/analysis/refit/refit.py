"""Make a run from finished runs and answers: its last layer is fitted again, to training data and answers."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sitar.analysis.answers import Answer, read_answers
from sitar.analysis.refit.expected import expected_accuracy, importance
from sitar.analysis.refit.last_layer import Choice, Features, choose, number_of_fits
from sitar.config import RefitConfig, RefitFeatures, RunConfig, run_config
from sitar.data.overlap import checksums, shared_samples
from sitar.data.rows import Stored
from sitar.data.types import Data, in_batches
from sitar.errors import ConfigError, DataError, RunError
from sitar.evaluation.evaluate import evaluate_method
from sitar.evaluation.inputs import Inputs, Source, read_inputs
from sitar.evaluation.trained_model import TrainedModel
from sitar.given import given_to
from sitar.methods.refit import RefitInputs, Refitted
from sitar.models.weights import to_bytes
from sitar.plugins import import_options
from sitar.progress import ShownProgress, Watch
from sitar.run_folder import RunFolder
from sitar.splits import TEST_SPLITS
from sitar.training.run import finish, write_environment

logger = logging.getLogger(__name__)
FEWEST = 5  # answers
MOST = 20_000  # training samples, and new images, that a last layer is fitted to, drawn at random where there are more
KINDS: tuple[RefitFeatures, ...] = (
    "latent",
    "encoder",
)  # hidden units are a function of the latent, and were no better


@dataclass(frozen=True)
class Candidate:
    """A candidate is a trained model whose last layer can be fitted again, with what a new layer may read."""

    model: TrainedModel
    data: Data  # features in the place of images, where the encoder is frozen
    answered: Inputs
    new: Inputs
    features: dict[RefitFeatures, Features]


@dataclass(frozen=True)
class Fitted:
    """This is the candidate that was chosen, with a new last layer on one kind of its features."""

    candidates: list[Candidate]
    chosen: Candidate
    kind: RefitFeatures
    method: Refitted
    choice: Choice


def refit(
    runs: Sequence[str | os.PathLike[str]],
    answers: str | os.PathLike[str],
    images: Source,
    *,
    root: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    progress: bool = True,
) -> RunFolder:
    """Fit the last layer of one of the runs again, and leave a finished run folder.

    `answers` is a file with the columns image and answer (or label), and `images` are what they are about. They are
    read as the runs' data is; `root` is where the paths of a table lie. Cross-validation on the answers chooses the
    run, its features and the penalty. Without `out` the new folder lies beside that of the chosen run.
    """
    began = time.monotonic()
    if out is not None and not _is_begun(RunFolder(Path(out))):
        RunFolder(Path(out)).refuse_used()  # before anything is computed
    read = read_answers(Path(answers))
    for note in read.notes:
        logger.warning("%s", note)
    given = read.given
    words = [*map(str, runs), "--answers", str(answers), "--images", *_words(images)]
    words += [] if root is None else ["--root", str(root)]
    with ShownProgress(progress) as shown:
        models = _load([RunFolder(Path(run)) for run in runs], device)
        y = _labels(given, models[0].classes)
        new = _inputs(models, images, root, given, shown.watch)
        fitted = fit(models, [_answered(inputs, given) for inputs in new], new, y, shown.watch)
        model, data = fitted.chosen.model, fitted.chosen.data
        section = RefitConfig(features=fitted.kind, answers=len(y), digest=_digest(given))
        config = model.config.model_copy(update={"refit": section})
        folder = RunFolder(Path(out) if out is not None else _default_folder(model.folder, section))
        facts = _facts(fitted, given, _disagreement(fitted.candidates), y)
        with folder.lock():
            whole = _with_weights(config, model.folder).to_dict()
            if not (_is_begun(folder) and folder.read_config() == whole):
                folder.create(whole)
            write_environment(
                folder, config, model.data, model.device, shlex.join(["sitar", "refit", *words, *import_options()])
            )
            if (encoder := model.folder.encoder()) is not None:
                folder.write_encoder(encoder)
            folder.write_model(to_bytes(fitted.method.state_dict()))
            splits, predictions = evaluate_method(fitted.method, data, model.device, shown.watch)
            facts |= {
                "selected_epoch": model.folder.result().get("selected_epoch"),
                "seconds": round(time.monotonic() - began, 3),
            }
            finish(folder, config, model.data, splits, predictions, {**given_to(model.result), **facts})
    return folder


def fit(
    models: Sequence[TrainedModel],
    answered: Sequence[Inputs],
    new: Sequence[Inputs],
    y: NDArray[np.int64],
    watch: Watch,
) -> Fitted:
    """Fit the last layer of one of the models again.

    `answered` are the images that have an answer, and `new` all images from where the model will be used, as each model
    reads them.
    """
    candidates = [_candidate(*given, watch) for given in zip(models, answered, new, strict=True)]
    kinds: list[tuple[Candidate, RefitFeatures]] = [(one, kind) for one in candidates for kind in one.features]
    sets = [candidate.features[kind] for candidate, kind in kinds]
    tell = watch("last layers fitted", number_of_fits(len(sets)))
    choice = choose(sets, y, len(models[0].classes), tell)
    chosen, kind = kinds[choice.setting.features]
    return Fitted(candidates, chosen, kind, _with_layer(chosen, kind, choice), choice)


def _load(folders: Sequence[RunFolder], device: str) -> list[TrainedModel]:
    """Load the runs whose last layer can be fitted again. A warning names the others and the reason."""
    models: list[TrainedModel] = []
    for folder in folders:
        folder.result()  # refuses a run that is not finished
        config = run_config(folder.read_config())
        if config.refit is not None:
            _leave_out(folder, "its last layer was fitted again already. Give the run that it was made of")
            continue
        same = next((model for model in models if model.config.data == config.data), None)
        data = None if same is None or same.method.needs_groups else same.data
        model = TrainedModel(folder, device, config=config, data=data)
        if model.method.bottleneck() is None:
            _leave_out(folder, f"{config.method.name} predicts from no latent, so it has no last layer")
            continue
        models.append(model)
    if not models:
        raise RunError("None of these runs has a last layer that can be fitted again. Give other runs.")
    first = models[0]
    for model in models[1:]:
        if model.classes != first.classes:
            raise ConfigError(
                f"The runs have other classes: {str(first.folder.path)!r} has {', '.join(first.classes)}, and "
                f"{str(model.folder.path)!r} has {', '.join(model.classes)}. Give runs with the same ones."
            )
    return models


def _leave_out(folder: RunFolder, reason: str) -> None:
    logger.warning("%r is left out: %s.", str(folder.path), reason)


def _labels(answers: Sequence[Answer], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the class of each answer. Refuse answers from which nothing can be learned."""
    numbers = {name: number for number, name in enumerate(classes)}
    if wrong := [answer for answer in answers if answer.answer not in numbers]:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise DataError(
            f"The answer {wrong[0].answer!r} for {wrong[0].image!r}{more} is no class of these runs. They have: "
            f"{', '.join(classes)}."
        )
    if len(answers) < FEWEST:
        raise DataError(f"There are {len(answers)} answers, and at least {FEWEST} are needed to fit a last layer.")
    y = np.array([numbers[answer.answer] for answer in answers], np.int64)
    if len(set(y.tolist())) < 2:
        raise DataError(
            f"All {len(y)} answers are {answers[0].answer!r}: a last layer needs answers of at least two classes. "
            "Answer about more images."
        )
    return y


def _inputs(
    models: Sequence[TrainedModel],
    images: Source,
    root: str | os.PathLike[str] | None,
    answers: Sequence[Answer],
    watch: Watch,
) -> list[Inputs]:
    """Read all new images as each model reads them. Models on the same data share them."""
    read: list[Inputs] = []
    for place, model in enumerate(models):
        same = next((other for other in range(place) if _reads_alike(models[other], model)), None)
        if same is not None:
            read.append(read[same])
            continue
        inputs = read_inputs(images, model, root=root, watch=watch)
        _answered(inputs, answers)  # refuses answers about other images first
        _refuse_test_images(inputs, model)
        read.append(inputs)
    return read


def _reads_alike(model: TrainedModel, other: TrainedModel) -> bool:
    return model.config.data == other.config.data and model.feature_columns == other.feature_columns


def _answered(inputs: Inputs, answers: Sequence[Answer]) -> Inputs:
    """Return the inputs that the answers are about, in their order. Refuse answers about other images."""
    places = {name: place for place, name in enumerate(inputs.names)}
    if bad := [answer.image for answer in answers if answer.image in inputs.unreadable]:
        raise DataError(
            f"The answered image {bad[0]!r} cannot be read: {inputs.unreadable[bad[0]]}. Repair it, or remove its "
            "answer."
        )
    if other := [answer.image for answer in answers if answer.image not in places]:
        raise DataError(
            f"{len(other):,} of the {len(answers):,} answers are about images that are not there, such as {other[0]!r}"
            f". The images are called, for example, {inputs.names[0]!r}. Are the answers about other images?"
        )
    chosen = [places[answer.image] for answer in answers]
    files = None if inputs.files is None else [inputs.files[place] for place in chosen]
    return Inputs([inputs.names[place] for place in chosen], inputs.x[chosen], files, inputs.unreadable)


def _refuse_test_images(inputs: Inputs, model: TrainedModel) -> None:
    """Refuse images that a test split holds too: it would no longer be a test. The layer learns from all of them."""
    for name, shared in shared_samples(inputs.x, inputs.names, model.data).items():
        if name in TEST_SPLITS:
            raise DataError(
                f"{len(shared):,} of the images are in the split {name!r} of {str(model.folder.path)!r}, such "
                f"as {shared[0]!r}. A model that is fitted to them cannot be tested there. Bring other images."
            )


def _candidate(model: TrainedModel, answered: Inputs, new: Inputs, watch: Watch) -> Candidate:
    """Compute every kind of features, of training samples and new images, at most so many, and of answered ones."""
    data = model.data if model.encoder is None else model.encoder.data(model.data, watch)
    readable = RefitInputs(model.method)

    def of(x: Stored) -> NDArray[np.float64]:
        return in_batches(readable.all, x, model.device, model.method.evaluation_batch).cpu().double().numpy()

    def of_images(x: Stored) -> NDArray[np.float64]:
        return of(x if model.encoder is None else model.encoder(x))

    places = _drawn(len(data.train))
    train, y = of(data.train.x[places]), data.train.y[places].cpu().numpy()
    images = of_images(answered.x), of_images(new.x[_drawn(len(new.names))])
    features, start = {}, 0
    for kind, width in readable.widths.items():
        columns = slice(start, start + width)
        if kind in KINDS:
            features[kind] = Features(train[:, columns], y, *(part[:, columns] for part in images))
        start += width
    return Candidate(model, data, answered, new, features)


def _drawn(n: int) -> torch.Tensor:
    """Return the places of at most so many of n samples, in their order."""
    if n <= MOST:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:MOST].sort().values


def _with_layer(candidate: Candidate, kind: RefitFeatures, choice: Choice) -> Refitted:
    """Return the method of a candidate with the last layer that was chosen."""
    method = Refitted(candidate.model.method, kind, len(choice.layer.bias))
    with torch.no_grad():
        method.head.weight.copy_(torch.from_numpy(choice.layer.weight))
        method.head.bias.copy_(torch.from_numpy(choice.layer.bias))
    return method.to(candidate.model.device).eval()


def _disagreement(candidates: Sequence[Candidate]) -> dict[str, bool]:
    """Return whether the candidates disagree on each of the new images that all of them can read."""
    if len(candidates) == 1:
        return dict.fromkeys(candidates[0].new.names, False)
    said = [dict(zip(one.new.names, one.model.predict_index(one.new.x).tolist(), strict=True)) for one in candidates]
    shared = [name for name in said[0] if all(name in other for other in said)]
    return {name: len({one[name] for one in said}) > 1 for name in shared}


def _facts(
    fitted: Fitted, answers: Sequence[Answer], disagreement: dict[str, bool], y: NDArray[np.int64]
) -> dict[str, Any]:
    """Return what result.json says of the fit: what was chosen, and the accuracy to expect where images come from."""
    places = {name: place for place, name in enumerate(disagreement)}
    place = np.array([places[answer.image] for answer in answers], np.int64)
    weight = importance([one.probability for one in answers], np.array(list(disagreement.values())), place)
    before = []
    for candidate in fitted.candidates:
        right = candidate.model.predict_index(candidate.answered.x) == y
        before.append({"run": str(candidate.model.folder.path), **expected_accuracy(right, weight)})
    return {
        "answers": len(y),
        "refit": {
            "run": str(fitted.chosen.model.folder.path),
            "features": fitted.kind,
            "penalty": fitted.choice.setting.penalty,
            "weighted": not np.allclose(weight, 1),
            "expected": expected_accuracy(fitted.choice.held_out.argmax(1) == y, weight),
            "before": before,
            "answered": [checksum.hex() for checksum in checksums(fitted.chosen.answered.x)],
        },
    }


def _digest(answers: Sequence[Answer]) -> str:
    lines = sorted(f"{answer.image}\n{answer.answer}" for answer in answers)
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:8]


def _default_folder(base: RunFolder, section: RefitConfig) -> Path:
    return base.path.with_name(f"{base.path.name}-{section.answers}answers-{section.digest}")


def _is_begun(folder: RunFolder) -> bool:
    """Say whether a refit was stopped here before it had its result. The same one is then made again, in its place."""
    return folder.is_started and not folder.is_done and "refit" in folder.read_config()


def _with_weights(config: RunConfig, base: RunFolder) -> RunConfig:
    """Return the settings with the source of the encoder's first weights, as the chosen run has it."""
    return config.model_copy(update={"model": run_config(base.read_config()).model})


def _words(images: Source) -> list[str]:
    return [str(images)] if isinstance(images, str | os.PathLike) else list(map(str, images))
