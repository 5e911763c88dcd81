"""Describe an estimator in plain values, and make it again from them. Nothing is pickled."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

import sitar
from sitar.errors import InputError, RunError

VERSION = 1
FITTED = {"n_features_in_": int, "n_iter_": int, "loss_curve_": list, "validation_scores_": (list, type(None))}
ARRAYS = ("classes_", "feature_names_in_", "shortcut_scores_")
PLAIN = (bool, int, float, str, type(None))
KINDS = "biufU"  # of arrays, besides those of objects: truth values, numbers and words
MOST = 2**26  # bytes of an array: one word of a stranger may claim to have a billion letters
T = TypeVar("T", bound=BaseEstimator)


def describe(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the class, the parameters and the fitted attributes of an estimator, as values that JSON can hold."""
    fitted = {name: getattr(estimator, name) for name in FITTED if hasattr(estimator, name)}
    arrays = {name: _array(getattr(estimator, name)) for name in ARRAYS if hasattr(estimator, name)}
    parameters = {name: _parameter(name, value) for name, value in estimator.get_params(deep=False).items()}
    return {
        "version": VERSION,
        "sitar": sitar.__version__,
        "class": type(estimator).__name__,
        "parameters": parameters,
        "fitted": fitted,
        "arrays": arrays,
    }


def described(cls: type[T], description: dict[str, Any], path: Path) -> T:
    """Make the estimator that a description describes. It has no model yet."""
    try:
        if description["version"] != VERSION:
            raise RunError(f"{str(path)!r} was saved by another release of sitar ({description['sitar']}).")
        if description["class"] != cls.__name__:
            raise RunError(
                f"{str(path)!r} holds a {description['class']}, and not a {cls.__name__}. Use "
                f"sitar.{description['class']}.load."
            )
        parameters = {name: _read(value) for name, value in description["parameters"].items()}
        if unknown := set(parameters) - set(inspect.signature(cls).parameters):
            raise RunError(f"{str(path)!r} has parameters that this release does not know: {', '.join(unknown)}.")
        estimator = cls(**parameters)
        for name, value in description["fitted"].items():
            if name not in FITTED or not isinstance(value, FITTED[name]):
                raise ValueError(f"{name} is not a fitted attribute, or not of its type")
            setattr(estimator, name, value)
        for name, array in description["arrays"].items():
            if name not in ARRAYS:
                raise ValueError(f"{name} is not a fitted array")
            setattr(estimator, name, _read_array(array["values"], array["dtype"]))
        if getattr(estimator, "classes_", np.empty((0, 0))).ndim != 1:
            raise ValueError("classes_ is not a list of classes")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(f"The description of the estimator in {str(path)!r} is damaged: {error}.") from error
    return estimator


def _array(values: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": values.dtype.str if values.dtype != object else "object", "values": values.tolist()}


def _read_array(values: list[Any], kind: str) -> NDArray[Any]:
    """Return an array of truth values, numbers or words, or of plain values as Python objects."""
    if not isinstance(values, list) or not isinstance(kind, str):
        raise ValueError("an array has a list of values, and the name of its type")
    if kind == "object":
        if not all(isinstance(value, PLAIN) for value in values):
            raise ValueError("an array of objects holds other than plain values")
        return np.array(values, dtype=object)
    dtype = np.dtype(kind)
    are_words = all(isinstance(value, str) for value in values)
    if dtype.kind not in KINDS or (dtype.kind == "U" and not are_words) or dtype.itemsize * len(values) > MOST:
        raise ValueError(f"an array of type {kind[:20]!r} is not read, or has more than {MOST:,} bytes")
    return np.array(values, dtype=dtype)


def _parameter(name: str, value: Any) -> Any:
    """Return a parameter as JSON holds it. Mappings become pairs, so that their keys keep their kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.random.RandomState):
        return None  # its state is used up
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, dict):
        return {"pairs": [[_parameter(name, key), _parameter(name, item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_parameter(name, item) for item in value]
    raise InputError(f"The parameter {name} is {value!r}: give numbers, words, lists and dicts of them.")


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return {_read(key): _read(item) for key, item in value["pairs"]}
    return [_read(item) for item in value] if isinstance(value, list) else value
