"""Say a message about settings and options in the words of Python: parameters of the estimator, and arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sklearn.base import BaseEstimator

PARAMETERS = {
    "data.channels": "channels",
    "method.alpha": "alpha",
    "method.beta": "beta",
    "method.lambda": "consistency",
    "method.noise": "noise",
    "method.vae_scale": "vae_scale",
    "model.latent_dim": "latent_dim",
    "train.batch_size": "batch_size",
    "train.epochs": "max_iter",
    "train.learning_rate": "learning_rate",
    "train.patience": "n_iter_no_change",
}
OPTIONS = {
    ", or continue that run with --resume": "",
    " with --out": "",
    "name the file with --import": "import the file first",
    "--device cpu": "device='cpu'",
}


def in_python(error: Exception, estimator: BaseEstimator) -> str:
    """Return what an error says, with the names that the user of an estimator has typed."""
    known = estimator.get_params(deep=False)
    settings = known.get("settings")
    named = set(settings) if isinstance(settings, Mapping) else set()
    typed = {setting for setting, name in PARAMETERS.items() if name in known} - named
    message = str(error)
    for setting in typed:
        message = re.sub(rf"(?<!\w){re.escape(setting)}(?!\w)", PARAMETERS[setting], message)
    for option, words in OPTIONS.items():
        message = message.replace(option, words)
    return message
