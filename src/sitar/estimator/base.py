"""This is what all estimators share. `fit` makes a run, as `sitar train` does, and the estimator keeps its files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from sitar.analysis.audit.first_look import first_look
from sitar.analysis.latents import posterior_means, shortcut_scores
from sitar.config import RunConfig, run_config
from sitar.data.own_data.npz import NpzConfig
from sitar.data.types import Data
from sitar.devices import resolve_device
from sitar.errors import ConfigError, InputError, RunError, TrainingError
from sitar.estimator.arrays import Channels, new_inputs, training_arrays
from sitar.estimator.convergence import warn_of_little_learning
from sitar.estimator.description import describe, described
from sitar.estimator.first_look import Audit
from sitar.estimator.samples import labelled_samples
from sitar.estimator.wording import in_python
from sitar.evaluation.metrics import softmax
from sitar.evaluation.trained_model import TrainedModel
from sitar.methods import data_for, needs_groups, needs_unlabelled
from sitar.run_folder import RunFolder
from sitar.splits import VAL
from sitar.training.run import check_encoder, check_trainable, train_on
from sitar.training.trackers import check_trackers

EPOCHS, LEAST_STEPS = 60, 1000  # where max_iter is None
HIDDEN = (
    64  # units of the layers that encode features, at least: a quarter of few features, as in the paper, is too few
)
OF_A_FIT = ("_model", "_run", "n_iter_", "loss_curve_", "validation_scores_", "shortcut_scores_")  # gone with a new one
CRITERION = "class_balanced"  # the accuracy on held-out samples by which early stopping compares epochs


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """This is the base of the estimators. A subclass has the parameters, and says which method they stand for.

    A fitted estimator holds the files of a run folder (`_run`), and the model that they describe. A pickle has the
    files only.
    """

    latent_dim: int | None
    max_iter: int | None
    batch_size: int
    learning_rate: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    class_weight: Mapping[Any, float] | str | None
    random_state: int | np.random.RandomState | None
    channels: Channels
    settings: Mapping[str, Any] | None
    device: str
    verbose: bool

    def _method(self) -> dict[str, Any]:
        """Return the section `method` of the settings."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None, attribute: Any = None, unlabelled: Any = None) -> Self:
        """Train on features (n, d) or images, and their labels.

        Images are uint8, or floats in [0, 1]: (n, h, w), (n, h, w, c) or (n, c, h, w). `sample_weight` says how often a
        sample counts. `attribute` is the value of the shortcut for each sample. Methods that need groups must have it,
        and other methods do not see it. `unlabelled` are inputs like X from where the model will be used. Methods that
        learn from unlabelled inputs must have them, and other methods do not see them.
        """
        for name in OF_A_FIT:
            vars(self).pop(name, None)
        x, y = training_arrays(self, X, y, self.channels)
        samples = labelled_samples(x, y, sample_weight, self.class_weight, attribute)
        self.classes_ = samples.classes
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        try:
            config, device = self._config(x.shape[1:], seed), resolve_device(self.device)
            data = samples.data(self.validation_fraction if self.early_stopping else None, seed)
            data = self._visible(config, data, unlabelled)
            check_trackers(config.train.log)
            check_trainable(config, data)
            with TemporaryDirectory(prefix="sitar-") as place:
                folder = RunFolder(Path(place) / "run")
                check_encoder(config, folder)
                train_on(config, data, folder, device=device, made_by=f"{self!r}.fit(X, y)", progress=self.verbose)
                self._keep(folder, data)
        except ConfigError as error:
            raise InputError(in_python(error, self)) from error
        except TrainingError:
            raise TrainingError(
                "Training stopped, since the loss was no longer a finite number. A lower learning_rate, a lower alpha, "
                "or settings={'train.gradient_clip': 1.0} usually helps."
            ) from None  # it names a checkpoint in the temporary folder
        warn_of_little_learning(self._model, data.train.x, self.classes_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each sample."""
        logits = self._logits(X)
        return self.classes_[logits.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of `classes_`."""
        return softmax(self._logits(X).astype(np.float64))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithm of the probability of each class: minus infinity where the probability is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class. Two classes have one score, which is positive for the second class."""
        logits = self._logits(X).astype(np.float64)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def audit(self, X: Any, y: Any) -> Audit:
        """Find out which simple cues in X tell y by themselves, as `sitar audit --first` does. Nothing is trained."""
        other = type(self)(**self.get_params(deep=False))  # so that a fitted estimator remembers its own features
        x, y = training_arrays(other, X, y, self.channels)
        data = labelled_samples(x, y).data(None, 0)
        look, _ = first_look(NpzConfig(), data, list(getattr(other, "feature_names_in_", ())))
        return Audit(look)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted estimator into a new folder. Nothing is pickled.

        It is a run folder: `sitar.load`, `sitar predict` and `sitar compare` read it too.
        """
        check_is_fitted(self)
        try:
            RunFolder(Path(folder)).write_files(self._run)
        except RunError as error:
            raise RunError(in_python(error, self)) from error

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str = "auto") -> Self:
        """Read an estimator that `save` has written."""
        run = RunFolder(Path(folder))
        estimator = described(cls, run.estimator(), run.path)
        estimator.device = device
        estimator._model, estimator._run = TrainedModel(run, device), run.files()
        if len(estimator.classes_) != estimator._model.task.num_classes:
            raise RunError(f"The description of the estimator in {str(run.path)!r} has other classes than its model.")
        return estimator

    def _config(self, shape: Sequence[int], seed: int) -> RunConfig:
        """Return the settings of the run. Those that `settings` names come last."""
        few = len(shape) == 1 and shape[0] // 4 < HIDDEN
        steps = {"epochs": EPOCHS, "least_steps": LEAST_STEPS} if self.max_iter is None else {"epochs": self.max_iter}
        stop = {"selection": f"{VAL}_{CRITERION}", "patience": self.n_iter_no_change} if self.early_stopping else {}
        raw: dict[str, Any] = {
            "data": {"name": "npz", "channels": self.channels},
            "model": {"latent_dim": self.latent_dim, "feature_hidden": HIDDEN if few else None},
            "method": self._method(),
            "train": {"batch_size": self.batch_size, "learning_rate": self.learning_rate, **steps, **stop},
        }
        if not isinstance(self.settings, Mapping | None):
            raise ConfigError(f"settings is {self.settings!r}: give a dict, such as {{'train.schedule': 'cosine'}}.")
        for key, value in (self.settings or {}).items():
            section, dot, name = str(key).partition(".")
            if section == "data":
                raise ConfigError(f"settings: {key!r} cannot be set here, since the data are X and y.")
            if not dot or section not in raw:
                raise ConfigError(f"settings: {key!r} is not of the form section.key, such as 'train.schedule'.")
            raw[section][name] = value
        return run_config(raw, preset=f"{type(self).__name__}/{raw['method'].get('name')}", seed=seed)

    def _visible(self, config: RunConfig, data: Data, unlabelled: Any) -> Data:
        if needs_groups(config) and data.train_groups is None:
            raise InputError(
                f"The method {config.method.name!r} needs the shortcut's value for every sample: "
                "fit(X, y, attribute=...). Methods that need no groups are, for example, sitar and jtt."
            )
        if not needs_unlabelled(config):
            return data_for(config, data)
        if unlabelled is None:
            raise InputError(
                f"The method {config.method.name!r} also learns from unlabelled inputs, from where the model will "
                "be used: fit(X, y, unlabelled=...)."
            )
        return data_for(config, data, unlabelled=new_inputs(self, unlabelled, data.task.shape, self.channels))

    def _keep(self, folder: RunFolder, data: Data) -> None:
        """Keep the files of a run, and what users of scikit-learn expect to find after a fit."""
        lines = folder.metrics()
        self.n_iter_ = len(lines)
        self.loss_curve_ = [line["loss"] for line in lines]
        watched = [line[VAL][CRITERION] for line in lines if VAL in line]
        self.validation_scores_ = watched if self.early_stopping else None
        self._model = TrainedModel(folder, self.device)
        if self._model.method.bottleneck() is not None:
            mu = posterior_means(self._model, data.train.x)
            self.shortcut_scores_ = shortcut_scores(mu, data.train.y, len(self.classes_)).numpy()
        folder.write_estimator(describe(self))
        self._run = folder.files()

    def _logits(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        return self._model.logits(new_inputs(self, X, self._model.task.shape, self.channels))

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_run" in state:
            with TemporaryDirectory(prefix="sitar-") as place:
                folder = RunFolder(Path(place))
                folder.write_files(self._run)
                self._model = TrainedModel(folder, self.device if _is_usable(self.device) else "auto")

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in vars(self)  # a fit that fails leaves other attributes

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _is_usable(device: str) -> bool:
    """Say whether this machine has the device: an estimator may come from another one."""
    try:
        resolve_device(device)
    except ConfigError:
        return False
    return True
