"""Keep the moments of a latent and its labels over batches, because those of a small batch are noisy."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from sitar.functional.correlation import EPS, LabelMoments


class RunningMoments(nn.Module):
    """Running moments are a moving average of the moments of batches.

    The first batches are averaged alike, until a batch's share falls to 1 - momentum. momentum = 0 is each batch alone.
    With a `floor`, the squared correlation loses what chance gives it in so many samples: v^2 becomes max(0, v^2 - 1/n).
    """

    variance: Tensor
    with_label: Tensor
    label_variance: Tensor
    batches: Tensor

    def __init__(self, axes: int, num_classes: int, momentum: float = 0.0, floor: bool = False) -> None:
        super().__init__()
        self.momentum, self.floor = momentum, floor
        if momentum > 0:  # otherwise there is no state
            contrasts = 1 if num_classes == 2 else num_classes
            self.register_buffer("variance", torch.zeros(axes))
            self.register_buffer("with_label", torch.zeros(contrasts, axes))
            self.register_buffer("label_variance", torch.zeros(contrasts))
            self.register_buffer("batches", torch.zeros(()))

    def forward(self, batch: LabelMoments) -> LabelMoments:
        """Take the moments of a batch in, and return those of all batches so far."""
        moments = self.updated(batch) if self.momentum > 0 else batch
        return without_chance(moments) if self.floor else moments

    @torch.no_grad()
    def updated(self, batch: LabelMoments) -> LabelMoments:
        self.batches.add_(1)
        share = (1 / self.batches).clamp_min(1 - self.momentum)
        for name in ("variance", "with_label", "label_variance"):
            getattr(self, name).lerp_(getattr(batch, name), share)
        return LabelMoments(
            self.variance.clone(),
            self.with_label.clone(),
            self.label_variance.clone(),
            batch.samples * (2 / share - 1),  # of a moving average of independent batches
        )


def without_chance(moments: LabelMoments) -> LabelMoments:
    """Return moments whose squared correlation is max(0, v^2 - 1/n), axis by axis."""
    squared = moments.correlation.square().clamp_min(EPS)
    kept = (1 - 1 / (moments.samples * squared)).clamp_min(0).sqrt()
    return replace(moments, with_label=moments.with_label * kept)
