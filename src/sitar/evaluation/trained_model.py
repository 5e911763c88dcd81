"""Load a finished run as a model that predicts."""

from __future__ import annotations

import logging
import os
import shlex
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sitar.config import RunConfig, run_config
from sitar.data import Data, Task, load_data
from sitar.data.rows import Rows
from sitar.data.types import described_task
from sitar.devices import resolve_device, what_it_cannot_do
from sitar.errors import DataError
from sitar.evaluation.evaluate import evaluate_method
from sitar.evaluation.frozen_encoder import FrozenEncoder
from sitar.evaluation.given import Given, as_stored
from sitar.evaluation.metrics import softmax
from sitar.evaluation.predict import Logits, predict_logits
from sitar.methods import build_method, data_for
from sitar.methods.several_heads import SeveralHeads
from sitar.models.weights import load_weights
from sitar.run_folder import PLACES, RunFolder, flat

logger = logging.getLogger(__name__)


def load(run: str | os.PathLike[str] | RunFolder, device: str = "auto") -> TrainedModel:
    """Load the model of a finished run folder."""
    return TrainedModel(run if isinstance(run, RunFolder) else RunFolder(Path(run)), device)


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
        if data is not None:
            self.loaded = data
        known = self.result.get("task")  # runs of early releases need their data
        self.task: Task = self.data.task if known is None else described_task(known)
        task, self.encoder = self.task, None
        if self.config.model.freeze_encoder:
            self.encoder = FrozenEncoder(self.config.model, task.shape, self.device, folder)
            task = self.encoder.task(task)
        with torch.random.fork_rng(devices=[]):  # first weights are drawn, and then replaced
            self.method = build_method(self.config, task)
        load_weights(folder.model(), self.method, folder.model_file)
        self.method.to(self.device).eval()

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
            command = (self.folder.environment() or {}).get("command")
            if not places or not _is_one_command(command):
                raise
            again = f"{command} --resume --out {shlex.quote(str(self.folder.path))} --set {places[0]}=NEW"
            raise DataError(f"{error} If the data of this run has moved, say once where it is: `{again}`.") from error

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        return tuple(self.result["classes"]) if "classes" in self.result else self.data.classes

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
            return predict_logits(self._scores(head), x, self.device, self.method.evaluation_batch)

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


def _is_one_command(command: Any) -> bool:
    """Return whether a text from a run folder is one command of ours. A stranger's could start other programs, too."""
    try:
        return command.startswith("sitar ") and shlex.join(shlex.split(command)) == command
    except (AttributeError, ValueError):
        return False


def _without_weights(config: RunConfig) -> RunConfig:
    """Return the settings without the source of the encoder's first weights.

    The run holds the trained encoder, so this source may be gone.
    """
    return config.model_copy(update={"model": config.model.model_copy(update={"encoder_weights": "random"})})
