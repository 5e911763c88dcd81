"""Show every axis of a run's own VAE as decoded images, with what its classifier predicts along the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sitar.analysis.explain.subject import Subject
from sitar.analysis.latents import bottleneck_of, decodes_images, ordered, vae_of
from sitar.analysis.samples import refuse_features
from sitar.analysis.thumbnails import thumbnails
from sitar.analysis.traversal import along, decoded, reach
from sitar.errors import RunError

STEPS = 11
MOST_AXES = 64  # those that track the label most, where there are more
CLASSES = 3  # one sample of each is a start, after the mean of all


def make(subject: Subject) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Traverse every axis: return which axis was moved from where to where, with images and probabilities as arrays."""
    model = subject.model
    vae, classify = vae_of(model), bottleneck_of(model).classify
    refuse_features(model)
    if not decodes_images(model):
        raise RunError("Behind an encoder the VAE decodes features, not images.")
    axes = ordered(subject.v)[:MOST_AXES]
    starts, labels = first_of_each(subject.mu, subject.held_out[1])
    images, probabilities, values = [], [], []
    for axis in axes:
        values.append(reach(subject.mu[:, axis], STEPS))
        z = along(starts, axis, values[-1])
        images.append(thumbnails(decoded(vae, z)))
        with torch.no_grad():
            logits = classify(z.flatten(0, 1).to(model.device)).float().cpu()
        probabilities.append(logits.softmax(1).unflatten(0, z.shape[:2]))
    moved = {
        "axes": axes,
        "starts": [{"label": label} for label in labels],
        "values": [steps.tolist() for steps in values],
    }
    return moved, {"images": torch.stack(images, 1).numpy(), "probabilities": torch.stack(probabilities, 1).numpy()}


def first_of_each(mu: Tensor, y: Tensor) -> tuple[Tensor, list[int]]:
    """Return the mean of all latents, then the first sample of each of the first classes, with their labels.

    The label of the mean is -1.
    """
    labels = y.unique().tolist()[:CLASSES]
    samples = [mu[(y == label).nonzero()[0, 0]] for label in labels]
    return torch.stack([mu.mean(0), *samples]), [-1, *labels]
