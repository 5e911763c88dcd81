"""Measure how fast the logits of a classifier change along each axis of a latent."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel

GRADIENT_SHARE = 8  # of an evaluation batch, which needs no graph, at a time


def check_gradient(model: TrainedModel) -> None:
    """Refuse a model whose logits have no derivative that says anything."""
    if model.method.no_slope is not None:
        raise RunError(model.method.no_slope)


def gradient_batch(model: TrainedModel) -> int:
    """Return how many samples are differentiated at a time."""
    return max(1, model.method.evaluation_batch // GRADIENT_SHARE)


def slopes(
    f: Callable[[Tensor], Tensor], z: Float[Tensor, "sample axis"], batch: int
) -> Float[Tensor, "sample classes axis"]:
    """Compute d f / d z of every sample. `f` may not mix samples.

    There is one backward pass for each class: there are usually fewer classes than axes.
    """
    jacobians = []
    for chunk in z.detach().split(batch):
        with torch.enable_grad():
            logits = f(chunk.requires_grad_())
        classes = logits.sum(0)  # no sample depends on another one, so that the sum has the slopes of each
        jacobians.append(torch.stack([torch.autograd.grad(y, chunk, retain_graph=True)[0] for y in classes], 1))
    return torch.cat(jacobians)


def sizes(jacobian: Float[Tensor, "sample classes axis"], deviation: Float[Tensor, " axis"]) -> Float[Tensor, " axis"]:
    """Return the sensitivity to each axis: the mean length of its column, times how far samples differ on that axis."""
    return jacobian.norm(dim=1).mean(0) * deviation
