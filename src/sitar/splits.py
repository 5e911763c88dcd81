"""This is the one place that lists the names of splits, and says which of them decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Split = Literal["val", "val_ood", "id_test", "ood_test", "test"]

TRAIN, VAL, VAL_OOD = "train", "val", "val_ood"
EVALUATION_SPLITS: tuple[str, ...] = get_args(Split)
TEST_SPLITS = ("id_test", "ood_test", "test")
"""They stand in this order in tables and reports."""
CHOOSING_SPLITS = (VAL, VAL_OOD)
"""A sweep may choose a setting by them. `val_ood` looks like an OOD test, so such a choice is asked for and marked."""
DECIDING_SPLITS = ("ood_test", "test", "id_test", VAL)
"""The first of them that a data set has is the one that a model is judged by: out of distribution where there is one,
and `val` only where there is no test."""


def deciding_split(names: Iterable[str]) -> str | None:
    """Return the split, of these names, that a model is judged by. Return None if no name is known."""
    present = set(names)
    return next((split for split in DECIDING_SPLITS if split in present), None)
