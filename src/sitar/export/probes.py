"""Probes are inputs on which an exported file is compared with the model. They need no data, as that may be gone."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from sitar.evaluation.trained_model import TrainedModel
from sitar.models import Standardise

MOST, LEAST = 256, 16
VALUES = 2**22  # of all probes together: fewer of large images, so that a check takes seconds


def probes(model: TrainedModel, *, floats: bool = False) -> Tensor:
    """Draw inputs as the model's data stores them: uint8 images, images as floats in [0, 1], or features.

    Images are dark and bright, flat and noisy. Features have the mean and the deviation of the training data.
    """
    shape, random = model.task.shape, np.random.default_rng(0)
    n = max(LEAST, min(MOST, VALUES // math.prod(shape)))
    if len(shape) == 1:
        return _features(model, torch.from_numpy(random.normal(size=(n, *shape)).astype(np.float32)))
    low, high = np.sort(random.uniform(0, 256, (2, n, shape[0], 1, 1)), axis=0)
    pixels = torch.from_numpy(random.uniform(low, high, (n, *shape)).astype(np.uint8))
    return pixels.float() / 255 if floats else pixels


def _features(model: TrainedModel, standard: Tensor) -> Tensor:
    known = [part for part in model.method.modules() if isinstance(part, Standardise)]
    if not known:
        return standard
    mean, scale = known[0].mean.cpu(), known[0].scale.cpu()
    return mean + standard * torch.where(scale > 0, 1 / scale.clamp_min(1e-12), 0.0)
