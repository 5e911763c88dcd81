"""Normalise by the mean and variance of the global batch, where several processes train one model."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from sitar.errors import ConfigError
from sitar.functional.precision import in_float64
from sitar.functional.reduce import batch_sum, current_share

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class GlobalBatchNorm(BatchNorm):
    """This is batch normalisation over all processes that share a batch. Elsewhere it is torch's own.

    It shares parameters and buffers with the module that it stands in for, and so has the same state dict. torch's
    SyncBatchNorm needs a GPU; this one does not.
    """

    @classmethod
    def like(cls, norm: BatchNorm) -> GlobalBatchNorm:
        """Return a module that stands in for `norm`."""
        made = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        made.weight, made.bias = norm.weight, norm.bias
        made.running_mean, made.running_var = norm.running_mean, norm.running_var
        made.num_batches_tracked = norm.num_batches_tracked
        return made.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        """Take any number of axes after the channels."""

    def forward(self, input: Tensor) -> Tensor:
        share = current_share(input) if self.training else None
        if share is None:
            return super().forward(input)
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        axes = [axis for axis in range(x.ndim) if axis != 1]
        samples = x.numel() // self.num_features
        variance, mean = map(in_float64, torch.var_mean(x, axes, correction=0))
        total = samples * share.total / share.rows
        first, second = batch_sum(torch.stack([mean, variance + mean.square()]) * samples) / total
        variance = (second - first.square()).clamp_min(0)
        self._remember(first.detach(), variance.detach() * total / max(1.0, total - 1))
        shape = [1, -1, *[1] * (x.ndim - 2)]
        scale = (variance + self.eps).rsqrt().to(x.dtype)
        scale, shift = (scale, 0) if self.weight is None else (scale * self.weight, self.bias.view(shape))
        return ((x - first.to(x.dtype).view(shape)) * scale.view(shape) + shift).to(input.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        newest = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), newest)
        self.running_var.lerp_(variance.to(self.running_var), newest)


def normalise_globally(module: nn.Module) -> None:
    """Have all batch normalisation within a module use the global batch. Refuse kinds that cannot."""
    for name, child in module.named_children():
        if isinstance(child, BatchNorm) and not isinstance(child, GlobalBatchNorm):
            if type(child) not in KINDS:
                raise ConfigError(
                    f"This network normalises batches with {type(child).__name__}, which would see the share of one "
                    "process alone. Train on one process, take another model.encoder, or use model.freeze_encoder=true."
                )
            setattr(module, name, GlobalBatchNorm.like(cast(BatchNorm, child)))
        else:
            normalise_globally(child)


def refuse_dropout(module: nn.Module) -> None:
    """Refuse layers that draw noise by themselves: on every process they would draw the same."""
    for child in module.modules():
        drop = getattr(child, "p", None) if isinstance(child, nn.modules.dropout._DropoutNd) else None
        drop = getattr(child, "drop_prob", drop)  # stochastic depth, as timm has it
        if isinstance(drop, float) and drop > 0:
            raise ConfigError(
                f"This network has dropout ({type(child).__name__}), which would draw the same noise on every process. "
                "Train on one process, take another model.encoder, or use model.freeze_encoder=true."
            )
