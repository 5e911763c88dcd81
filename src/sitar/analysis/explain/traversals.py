"""Every axis of a run's own VAE as decoded images, and what its classifier says along the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sitar.analysis import traversal as pictures
from sitar.analysis.audit.scores import ordered
from sitar.analysis.explain.sensitivity import MOST, means, scores
from sitar.analysis.samples import decodes_images, held_out
from sitar.analysis.traversal import along, decoded, reach, shrunk
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.models import VAE

STEPS = 11
MOST_AXES = 64  # those that track the label most, where there are more
CLASSES = 3  # one sample of each is a start, after the mean of all

Part = tuple[dict[str, Any], dict[str, np.ndarray]]


def traversals(model: TrainedModel) -> Part:
    """What was moved from where to where, and images and probabilities as arrays."""
    bottleneck = model.method.bottleneck()
    if bottleneck is None or not isinstance(bottleneck.network, VAE):
        raise RunError("This method has no VAE.")
    if not decodes_images(model):
        raise RunError(
            "This data holds features, not images."
            if len(model.data.task.shape) != 3
            else "Behind an encoder the VAE decodes features, not images."
        )
    x, y = held_out(model, MOST)
    mu = means(model, bottleneck, x)
    axes = ordered(scores(mu, y, len(model.classes)))[:MOST_AXES]
    starts, labels = first_of_each(mu, y)
    images, probabilities, values = [], [], []
    for axis in axes:
        values.append(reach(mu[:, axis], STEPS))
        z = along(starts, axis, values[-1])
        images.append(shrunk(decoded(bottleneck.network, z), pictures.MOST_SIDE))
        with torch.no_grad():
            logits = bottleneck.classify(z.flatten(0, 1).to(model.device)).float().cpu()
        probabilities.append(logits.softmax(1).unflatten(0, z.shape[:2]))
    about = {
        "axes": list(axes),
        "starts": [{"label": label} for label in labels],
        "values": [row.tolist() for row in values],
    }
    arrays = {"images": torch.stack(images, 1).numpy(), "probabilities": torch.stack(probabilities, 1).numpy()}
    return about, arrays


def first_of_each(mu: Tensor, y: Tensor) -> tuple[Tensor, list[int]]:
    """The mean of all latents, then the first sample of each of the first classes, with their labels (-1: the mean)."""
    labels = y.unique().tolist()[:CLASSES]
    samples = [mu[(y == label).nonzero()[0, 0]] for label in labels]
    return torch.stack([mu.mean(0), *samples]), [-1, *labels]
