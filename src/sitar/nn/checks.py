"""Refuse features and labels that do not fit, with a sentence that says what to give instead."""

from __future__ import annotations

import torch
from torch import Tensor

from sitar.errors import DataError


def check_features(features: Tensor, num_features: int) -> None:
    """Raise an error unless the features are floating numbers of the shape (batch, num_features)."""
    if features.ndim != 2 or features.shape[1] != num_features or not features.is_floating_point():
        raise DataError(
            f"Features have the shape {tuple(features.shape)} and the dtype {features.dtype}. Expected are floating "
            f"numbers of the shape (batch, {num_features}). Pool feature maps and tokens first, and give the module "
            "the number of features that the head sees."
        )


def class_indices(labels: Tensor | None, features: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return labels as int64 on the device of the features. Raise an error unless there is one for each sample."""
    if labels is None:
        raise DataError("Noise needs labels in training mode. To predict, call eval() on the model first.")
    if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.is_complex():
        raise DataError(
            f"Labels have the shape {tuple(labels.shape)} and the dtype {labels.dtype}, for {len(features)} samples. "
            "Expected is one class index a sample, an integer. Give the indices from before one-hot coding, smoothing "
            "or mixing, or call .long() on a column of 0 and 1."
        )
    if weight is not None and weight.shape != labels.shape:
        raise DataError(f"Weights have the shape {tuple(weight.shape)}, and labels {tuple(labels.shape)}.")
    return labels.to(features.device, torch.int64)


def check_classes(labels: Tensor, num_classes: int) -> None:
    """Raise an error if a label is no class. On an accelerator this waits for it."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < num_classes):
        raise DataError(
            f"Labels lie between {labels.min()} and {labels.max()}, and there are {num_classes} classes: expected are "
            f"0 to {num_classes - 1}. Leave out samples without a label."
        )
