"""Arrays and frames of a user become inputs as a split stores them. Others are refused as scikit-learn does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_X_y, validate_data
from torch import Tensor

from sitar.data.array_dataset import as_features, as_images
from sitar.errors import DataError, InputError

Channels = Literal["first", "last"] | None
_NUMBERS = (np.float64, np.float32)
LEAST = 2  # samples to learn from
IMAGES = {"dtype": None, "ensure_2d": False, "allow_nd": True}  # how scikit-learn checks them


def training_arrays(estimator: Any, x: Any, y: Any, channels: Channels) -> tuple[Tensor, NDArray[Any]]:
    """Return inputs and labels to learn from, and let the estimator remember the number and the names of features."""
    x = _stacked(x)
    if _are_images(x):
        x, y = check_X_y(x, y, ensure_min_samples=LEAST, estimator=estimator, **IMAGES)
        inputs = _images(x, channels)
        estimator.n_features_in_ = math.prod(inputs.shape[1:])
        vars(estimator).pop("feature_names_in_", None)
    else:
        x, y = validate_data(estimator, x, y, dtype=_NUMBERS, ensure_min_samples=LEAST)
        inputs = _features(x)
    _check_labels(y)
    return inputs, y


def _check_labels(y: NDArray[Any]) -> None:
    """Refuse what is no class: measured numbers, times, which files of a run do not hold, and a mixture of kinds."""
    if y.dtype.kind in "mM":
        raise InputError("y holds dates or times. Labels are numbers, words or booleans: give y.astype(str).")
    try:
        check_classification_targets(y)
    except TypeError as error:
        raise InputError(f"y holds what cannot be sorted into classes ({error}). Give words, or numbers.") from error


def new_inputs(estimator: Any, x: Any, shape: Sequence[int], channels: Channels) -> Tensor:
    """Return inputs to predict. They must look like those that the estimator was fitted to, of the shape `shape`."""
    if len(shape) == 1:
        features: Any = validate_data(estimator, x, dtype=_NUMBERS, reset=False)
        return _features(features)
    x = check_array(_stacked(x), estimator=estimator, input_name="X", **IMAGES)
    _check_images(x)
    layouts: dict[Literal["first", "last"], tuple[int, ...]] = {"first": (1, *x.shape[1:])}
    if x.ndim == 4:
        layouts = {"first": x.shape[1:], "last": (x.shape[3], *x.shape[1:3])}
    fitting: list[Channels] = [layout for layout, found in layouts.items() if found == tuple(shape)]
    if not fitting:
        raise InputError(
            f"X has the shape {x.shape}, and this estimator was fitted to images of shape {tuple(shape)}: channels, "
            "height and width."
        )
    return _images(x, channels if channels in fitting else fitting[0])


def _stacked(x: Any) -> Any:
    """Return a list of images as one array. All else stays as it is."""
    if not isinstance(x, (list, tuple)) or not any(len(getattr(image, "shape", ())) > 1 for image in x):
        return x
    try:
        return np.stack(x)
    except ValueError as error:
        raise InputError(
            f"X is a list of images of different shapes ({error}). Bring them to one size, and give np.stack(X)."
        ) from error


def _are_images(x: Any) -> bool:
    return len(getattr(x, "shape", ())) > 2


def _features(x: NDArray[Any]) -> Tensor:
    try:
        return torch.from_numpy(as_features(x, "X"))
    except DataError as error:
        raise InputError(f"{error} X must hold finite numbers that float32 can represent.") from error


def _check_images(x: NDArray[Any]) -> None:
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise InputError(
            f"X has the shape {x.shape}: expected features (n, d), or images (n, h, w), (n, h, w, c) or (n, c, h, w)."
        )


def _images(x: NDArray[Any], channels: Channels) -> Tensor:
    _check_images(x)
    try:
        return torch.from_numpy(as_images(x, "X", channels))
    except DataError as error:
        raise InputError(str(error).replace("data.channels", "channels")) from error
