"""Load a finished run as a model that predicts."""

from __future__ import annotations

import logging
import os
import shlex
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from sitar.config import RunConfig, run_config
from sitar.data import Data, Task, load_data
from sitar.data.rows import Rows
from sitar.data.types import described_task
from sitar.devices import forked_random_state, resolve_device, what_it_cannot_do
from sitar.errors import DataError, RunError, SitarError
from sitar.evaluation.evaluate import evaluate_method
from sitar.evaluation.frozen_encoder import FrozenEncoder
from sitar.evaluation.given import Given, as_stored
from sitar.evaluation.metrics import softmax
from sitar.evaluation.predict import Logits, predict_logits
from sitar.methods import Method, build_method, data_for
from sitar.methods.several_heads import SeveralHeads
from sitar.models.pretrained import RANDOM, PretrainedEncoder
from sitar.models.weights import check_size, load_weights
from sitar.presets import load_config, preset_names
from sitar.registry import METHODS
from sitar.run_folder import INERT, PLACES, RunFolder, flat

logger = logging.getLogger(__name__)
SMALL = 2**28  # bytes of a file that may be read before it is known to fit


def load(run: str | os.PathLike[str] | RunFolder, device: str = "auto") -> TrainedModel:
    """Load the model of a finished run folder. Its data is not read: a run that needs it for this is refused."""
    folder = run if isinstance(run, RunFolder) else RunFolder(Path(run))
    if not {"task", "classes"} <= folder.result().keys():
        raise RunError(
            f"The run in {str(folder.path)!r} was made by an early release: its result.json does not say what a model "
            "is built from (task, classes), and its data is not read for this. Train it again to use its model."
        )
    return TrainedModel(folder, device)


class TrainedModel:
    """A trained model predicts from new inputs. It does not need its training data.

    Images are paths of files or images of Pillow, one or a list of them, which are decoded and resized as the training
    images were. Or they are arrays as these are stored: uint8 (n, channel, height, width), or floats in [0, 1].
    Features are (n, feature).
    """

    def __init__(
        self,
        folder: RunFolder,
        device: str = "auto",
        *,
        config: RunConfig | None = None,
        data: Data | None = None,
        beside: TrainedModel | None = None,
    ) -> None:
        """Load the model of a finished run. `config` and `data` are the run's, if the caller has them already.

        The data of the model `beside` it is not loaded again where the settings of the data are the same.
        """
        self.result = folder.result()  # raises if the run is not finished
        self.folder = folder
        self.config: RunConfig = _without_weights(run_config(folder.read_config()) if config is None else config)
        self.device = resolve_device(device)
        self.beside = beside
        self._is_warned = False
        if data is not None:
            self.loaded = data
        if "task" in self.result and METHODS.added_by(self.config.method.name) is None:
            self._check_sizes()
        self.task: Task = self._described() if "task" in self.result else self.data.task
        shown = {name.encode("utf-8", "backslashreplace") for name in self.classes}  # as tables show them
        if not len(self.classes) == len(shown) == self.task.num_classes:
            raise self._damaged(f"classes should be {self.task.num_classes} names that differ")
        task, self.encoder = self.task, None
        if self.config.model.freeze_encoder:
            self.encoder = FrozenEncoder(self.config.model, task.shape, self.device, folder)
            task = self.encoder.task(task)
        with forked_random_state():  # first weights are drawn, and then replaced
            self.method = build_method(self.config, task)
        load_weights(folder.model(), self.method, folder.model_file)
        self.method.to(self.device).eval()

    def _described(self) -> Task:
        """Return the task that result.json describes."""
        assert "task" in self.result
        try:
            task = described_task(self.result["task"])
        except ValueError as error:
            raise self._damaged(f"task: {error}") from error
        if self.config.model.freeze_encoder and len(task.shape) != 3:
            raise self._damaged("task: an encoder reads images, and this is no shape of one")
        return task

    def _check_sizes(self) -> None:
        """Compare the sizes of the weights with the settings, before memory is taken for a model of any size."""
        model, folder = self.config.model, self.folder

        def encoder() -> PretrainedEncoder:
            assert model.encoder is not None
            return PretrainedEncoder(model.encoder, self._described().shape, RANDOM, stride_in_1x1=model.stride_in_1x1)

        def method() -> Method:
            task = self._described()
            if model.freeze_encoder:
                features = encoder().out_features
                task = replace(task, shape=(features,), features=(torch.zeros(features), torch.ones(features)))
            return build_method(self.config, task)

        if model.freeze_encoder and not folder.has_encoder:
            raise RunError(f"{str(folder.encoder_file)!r} is missing: the run has lost the weights of its encoder.")
        parts = {folder.encoder_file: encoder} if model.freeze_encoder else {}
        for file, build in {**parts, folder.model_file: method}.items():
            try:
                check_size(file, build)
            except RunError:
                if file.stat().st_size < SMALL:
                    folder.compare(file)  # one that was cut off is damaged, and its checksum says so
                raise

    def _damaged(self, why: str) -> RunError:
        return RunError(f"{str(self.folder.result_file)!r} is damaged: {why}.")

    @cached_property
    def data(self) -> Data:
        """Return the data that the run was trained on. Predictions for other inputs do not need it."""
        return data_for(self.config, self.loaded, to_learn=False)

    @cached_property
    def loaded(self) -> Data:
        """Load all of the data, or share it with the model beside this one."""
        if self.beside is not None and self.beside.config.data == self.config.data:
            return self.beside.loaded
        if self.folder.is_of_an_estimator:
            raise DataError(
                "An estimator made this run from arrays in memory, and does not keep them. What needs the training "
                "data cannot be done here. `sitar predict`, `sitar compare` and `sitar export` do not need it."
            )
        try:
            return load_data(self.config.data)
        except DataError as error:
            places = [name for name in PLACES if name in flat(self.config.to_dict()) and name.startswith("data.")]
            if not places:
                raise
            again = shlex.join([*_train(self.folder, places[0]), "--set", f"{places[0]}=NEW"])
            raise DataError(f"{error} If the data of this run has moved, say once where it is: `{again}`.") from error

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        return tuple(self.result["classes"]) if "classes" in self.result else self.data.classes

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Return the columns of a table that an input is made of, in their order: none, if they are not known."""
        return tuple(self.result["task"].get("feature_columns", ())) if "task" in self.result else ()

    @property
    def heads(self) -> int:
        """Return how many heads the method has. `logits` is of the one that its settings name."""
        return self.method.heads if isinstance(self.method, SeveralHeads) else 1

    def logits(self, x: Given | Rows, head: int | None = None) -> np.ndarray:
        """Return class scores (n, class) in float32: of the method, or of one of its heads if it has several."""
        if isinstance(x, Rows):
            return np.concatenate([self.logits(part, head) for part in x.split(self.method.evaluation_batch)])
        x = as_stored(x, self.config.data)
        expected = self.task.shape
        if tuple(x.shape[1:]) != expected:
            raise DataError(f"Expected inputs of shape (n, {', '.join(map(str, expected))}), got {tuple(x.shape)}.")
        in_range = x.dtype == torch.uint8 or (x.is_floating_point() and bool(((x >= 0) & (x <= 1)).all()))
        if len(expected) == 3 and not in_range:
            raise DataError("Expected images as uint8, or as floats in [0, 1].")
        if len(expected) == 1:
            x = x.float()  # also bytes, which are pixels elsewhere
            if not x.isfinite().all():
                raise DataError("Features have values that are missing, NaN or infinite, in 32 bits.")
        with what_it_cannot_do(self.device):
            if self.encoder is not None:
                x = self.encoder(x)
            logits = predict_logits(self._scores(head), x, self.device, self.method.evaluation_batch)
        if not self._is_warned and not np.isfinite(logits).all():
            self._is_warned = True
            logger.warning(
                "Scores of the model in %r are not finite numbers. Its weights are damaged, or these inputs are far "
                "from what it was trained on.", str(self.folder.path),
            )  # fmt: skip
        return logits

    def _scores(self, head: int | None) -> Logits:
        method = self.method
        if head is None or not isinstance(method, SeveralHeads):
            return method.logits
        return lambda x: method.head_logits(x)[:, head]

    def differentiable(self, x: Tensor) -> Tensor:
        """Return class scores of inputs as a batch carries them. They have a gradient by `x`."""
        return self.method.logits(x if self.encoder is None else self.encoder.network(x))

    def predict_proba(self, x: Given) -> np.ndarray:
        """Return class probabilities (n, class), in the order of `classes`."""
        return softmax(self.logits(x))

    def predict_index(self, x: Given | Rows) -> np.ndarray:
        """Return the place in `classes` of the most probable class of each input."""
        return self.logits(x).argmax(1)

    def predict(self, x: Given) -> np.ndarray:
        """Return the most probable class of each input: its name, or its number where classes are numbered."""
        index, names = self.predict_index(x), self.classes
        return index if list(names) == [str(i) for i in range(len(names))] else np.array(names)[index]

    def evaluate(self) -> dict[str, dict[str, Any]]:
        """Compute the metrics of every split again. Data that has changed since the run is said to have."""
        before = (self.folder.environment() or {}).get("data_checksum")
        if before is not None and before != self.data.checksum:
            logger.warning(
                "The data has changed since the run in %r was trained, so these figures are of other data than those "
                "in its result.json.", str(self.folder.path),
            )  # fmt: skip
        data = self.data if self.encoder is None else self.encoder.data(self.data)
        return evaluate_method(self.method, data, self.device)[0]


def _train(folder: RunFolder, place: str) -> list[str]:
    """Return the words of a command that resumes a run, without one setting: where its data lies.

    They are made from the settings. A command that a stranger's folder holds could run other programs.
    """
    config = run_config(folder.read_config())
    words, path = ["sitar", "train"], ["--resume", "--out", str(folder.path)]
    try:
        if config.preset not in preset_names():
            return [*words, "PRESET", *path]
        known, settings = flat(load_config(config.preset, (), config.seed).to_dict()), flat(config.to_dict())
    except SitarError:
        return [*words, "PRESET", *path]
    changed = [key for key in settings if key not in (place, *INERT) and settings[key] != known.get(key)]
    words += [config.preset, "--seed", str(config.seed)]
    for key in changed:
        value = yaml.safe_dump(settings[key], default_flow_style=True, width=10**6).removesuffix("...\n").strip()
        words += ["--set", f"{key}={value}"]
    return [*words, *path]


def _without_weights(config: RunConfig) -> RunConfig:
    """Return the settings without the source of the encoder's first weights.

    The run holds the trained encoder, so this source may be gone.
    """
    return config.model_copy(update={"model": config.model.model_copy(update={"encoder_weights": "random"})})
