"""Gather moments over batches, where one batch is too small to tell which features track the label."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sitar.errors import ConfigError
from sitar.functional.correlation import LabelMoments, pooled_moments

NAMES = ("mean", "label_mean", "variance", "with_label", "label_variance", "samples")  # all that can be pooled


class RunningMoments(nn.Module):
    """This is a running estimate of the moments of features and labels.

    Every batch multiplies the weight of all samples before it by 1 - momentum. In the long run a batch has the share
    `momentum`, as in batch normalisation. A short batch has less, and the first one has everything. The state is made
    of buffers, so the state dict holds it.
    """

    samples: Tensor
    weight: Tensor

    def __init__(self, num_features: int, num_classes: int, momentum: float) -> None:
        super().__init__()
        if not 0 < momentum <= 1:
            raise ConfigError(
                f"momentum is {momentum}. It is the share of the newest batch: above 0 and at most 1, such as 0.1. "
                "None takes every batch alone."
            )
        self.momentum = momentum
        contrasts = 1 if num_classes == 2 else num_classes
        self.register_buffer("mean", torch.empty(num_features))
        self.register_buffer("label_mean", torch.empty(contrasts))
        self.register_buffer("variance", torch.empty(num_features))
        self.register_buffer("with_label", torch.empty(contrasts, num_features))
        self.register_buffer("label_variance", torch.empty(contrasts))
        self.register_buffer("samples", torch.empty(()))
        self.register_buffer("weight", torch.empty(()))  # of all samples so far
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget all batches. Loaders call this, as for layers of torch, where a checkpoint holds no moments."""
        for buffer in self.buffers():
            nn.init.zeros_(buffer)  # transformers lets nn.init leave what a checkpoint holds
        nn.init.ones_(self.samples)

    @property
    def moments(self) -> LabelMoments:
        """Return the moments so far, in float32. Before the first batch no feature tracks the label."""
        return LabelMoments(**{name: self.get_buffer(name).float() for name in NAMES})

    @torch.no_grad()
    def forward(self, batch: LabelMoments) -> LabelMoments:
        """Take in the moments of a batch, and return those of all batches.

        A batch whose moments are not finite is left out: an overflow of mixed precision would stay for good.
        """
        weight = (1 - self.momentum) * self.weight.float() + batch.samples
        pooled = pooled_moments(self.moments, batch, batch.samples / weight)
        usable = pooled.variance.isfinite().all() & pooled.with_label.isfinite().all()
        for name in NAMES:
            buffer = self.get_buffer(name)
            buffer.copy_(torch.where(usable, getattr(pooled, name), buffer))
        self.weight.copy_(torch.where(usable, weight, self.weight))
        return self.moments

    def extra_repr(self) -> str:
        return f"momentum={self.momentum}"
