"""Which axes does a trained classifier use? How fast its logits change along each, in steps that samples differ by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sitar.analysis.samples import held_out
from sitar.data.types import in_batches
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.functional.correlation import label_correlation, shortcut_score
from sitar.methods.base import Bottleneck

MOST = 2000  # held-out samples
GRADIENT_SHARE = 8  # of an evaluation batch, which needs no graph, at a time


def sensitivity(model: TrainedModel) -> dict[str, Any]:
    """Of a model's own latent, at the posterior means of held-out samples."""
    bottleneck = sloped(model)
    x, y = held_out(model, MOST)
    mu = means(model, bottleneck, x)
    jacobian = slopes(bottleneck.classify, mu.to(model.device), gradient_batch(model)).cpu()
    deviation = mu.std(0)
    two = jacobian.shape[1] == 2
    signed = (jacobian[:, 1] - jacobian[:, 0]).mean(0) * deviation if two else None
    return {
        "n": len(y),
        "axes": list(range(mu.shape[1])),
        "values": sizes(jacobian, deviation).tolist(),
        "v": scores(mu, y, len(model.classes)).tolist(),
        "signed": None if signed is None else signed.tolist(),
    }


def slopes(
    f: Callable[[Tensor], Tensor], z: Float[Tensor, "sample axis"], batch: int
) -> Float[Tensor, "sample classes axis"]:
    """d f / d z of every sample. `f` may not mix samples. One pass back a class: fewer than axes, as a rule."""
    parts = []
    for chunk in z.split(batch):
        logits, pull = torch.func.vjp(f, chunk)  # type: ignore[reportAssignmentType]
        rows = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device)
        parts.append(torch.stack([pull(row.expand_as(logits))[0].detach() for row in rows], 1))
    return torch.cat(parts)


def sizes(jacobian: Float[Tensor, "sample classes axis"], deviation: Float[Tensor, " axis"]) -> Float[Tensor, " axis"]:
    """Mean over samples of the length of each axis's column, times how far samples differ on that axis."""
    return jacobian.norm(dim=1).mean(0) * deviation


def scores(mu: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """v of Eq. 2, over all these samples at once."""
    return shortcut_score(label_correlation(mu, y, num_classes))


def sloped(model: TrainedModel) -> Bottleneck:
    """The latent of a model whose classifier has a derivative there; else the reason why not."""
    bottleneck = model.method.bottleneck()
    if model.method.no_slope is not None:
        raise RunError(model.method.no_slope)
    if bottleneck is None:
        raise RunError("This method predicts from no latent.")
    return bottleneck


def means(model: TrainedModel, bottleneck: Bottleneck, x: Tensor) -> Tensor:
    """The latents of inputs as a split stores them."""
    x = x if model.encoder is None else model.encoder(x)
    return in_batches(bottleneck.latent, x, model.device, model.method.evaluation_batch).float().cpu()


def gradient_batch(model: TrainedModel) -> int:
    return max(1, model.method.evaluation_batch // GRADIENT_SHARE)
