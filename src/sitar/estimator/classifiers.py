"""These are the classifiers: SITAR with its own parameters, and any registered method by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sitar.estimator.arrays import Channels
from sitar.estimator.base import RobustClassifier

ClassWeight = Mapping[Any, float] | Literal["balanced"] | None


class SitarClassifier(RobustClassifier):
    """SITAR perturbs what tracks the label by itself, so that a classifier must use the rest too.

    It needs no groups. Features are standardised by the moments of the training samples.

    The defaults are strong noise, for data in which you suspect a strong shortcut. They cost accuracy on data without
    one: begin there with `alpha=1.0, consistency=1.0`, and compare with the control.

    Parameters
    ----------
    alpha : strength of the noise. 0, with `consistency` 0, is the control: the same model without noise.
    consistency : weight of the term that keeps the logits the same under the noise (lambda in the paper).
    beta : weight of the VAE's KL divergence.
    noise : kind of noise: "axis" is the paper's, and docs/methods/sitar.md describes the others.
    vae_scale : "sum" (the paper) or "mean": the VAE's terms are divided by the number of features or pixels.
    latent_dim : number of latent axes. None: a quarter of the features, as in the paper, and ten for images.
    max_iter : number of epochs. None: 60, and more for small data, until there are 1,000 steps. A fit of fewer than 100
        steps, or one whose model predicts one class for all training samples, warns (`ConvergenceWarning`).
    batch_size : samples of a step; smaller data is one batch.
    learning_rate : of Adam.
    early_stopping : whether to hold out samples, stop when their class-balanced accuracy no longer rises, and keep the
        weights of the best epoch.
    validation_fraction : share of the samples that are held out, of each class. Only with `early_stopping`.
    n_iter_no_change : epochs without a better accuracy, after which training stops. Only with `early_stopping`.
    class_weight : "balanced", a weight for each class, or None. It multiplies `sample_weight`. Strong noise makes
        logits small, so that without weights the most frequent class would be predicted too often.
    random_state : an integer makes the result the same in every call.
    channels : "first" or "last": the axis of images that holds channels. None: the one that is at most 4 long.
    settings : every other setting by name, such as {"method.score_floor": True, "train.schedule": "cosine"}.
    device : "auto" (the first GPU, or the CPU), "cpu" or "cuda".
    verbose : whether to show progress.

    Attributes
    ----------
    classes_ : the classes, in the order of `predict_proba`.
    n_features_in_, feature_names_in_ : number of features, and their names where X has words as columns.
    n_iter_, loss_curve_ : number of epochs that were trained, and the loss of each.
    validation_scores_ : accuracy on held-out samples after each epoch; None without `early_stopping`.
    shortcut_scores_ : v of every latent axis (Eq. 2): its absolute correlation with the label in the training samples.

    """

    def __init__(
        self,
        *,
        alpha: float = 5.0,
        consistency: float = 0.3,
        beta: float = 0.5,
        noise: str = "axis",
        vae_scale: Literal["sum", "mean"] = "sum",
        latent_dim: int | None = 32,
        max_iter: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: ClassWeight = "balanced",
        random_state: int | np.random.RandomState | None = None,
        channels: Channels = None,
        settings: Mapping[str, Any] | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.alpha = alpha
        self.consistency = consistency
        self.beta = beta
        self.noise = noise
        self.vae_scale = vae_scale
        self.latent_dim = latent_dim
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.random_state = random_state
        self.channels = channels
        self.settings = settings
        self.device = device
        self.verbose = verbose

    def _method(self) -> dict[str, Any]:
        own = {"alpha": self.alpha, "lambda": self.consistency, "beta": self.beta}
        return {"name": "sitar", **own, "noise": self.noise, "vae_scale": self.vae_scale, "score_floor": True}


class ShortcutRobustClassifier(RobustClassifier):
    """Any registered method is trained and asked like an estimator of scikit-learn.

    Parameters
    ----------
    method : name of the method, such as "erm", "jtt" or "lff". Those that need groups are given the
        shortcut's values: `fit(X, y, attribute=...)`.
    settings : settings of the method and of training by name, such as {"method.copies": 50}.

    The other parameters and the attributes are those of `SitarClassifier`, but classes have no weights by default.
    Methods without a latent, such as "diffusion", have no `shortcut_scores_`.

    """

    def __init__(
        self,
        method: str = "sitar",
        *,
        settings: Mapping[str, Any] | None = None,
        latent_dim: int | None = 32,
        max_iter: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: ClassWeight = None,
        random_state: int | np.random.RandomState | None = None,
        channels: Channels = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.settings = settings
        self.latent_dim = latent_dim
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.random_state = random_state
        self.channels = channels
        self.device = device
        self.verbose = verbose

    def _method(self) -> dict[str, Any]:
        return {"name": self.method}
