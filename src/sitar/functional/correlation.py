"""Measure which latent axes track the label (Eq. 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from sitar.functional.reduce import global_sum

EPS = 1e-8


@dataclass(frozen=True)
class LabelMoments:
    """These moments say how the axes of a latent vary, and how they vary with the label.

    Two classes give one contrast, y itself. More classes give one contrast for each class against the rest, because a
    class index has no order. No moment carries a gradient.
    """

    mean: Float[Tensor, " latent"]
    label_mean: Float[Tensor, " contrast"]
    variance: Float[Tensor, " latent"]  # of the axes
    with_label: Float[Tensor, "contrast latent"]  # covariance of the contrasts with the axes
    label_variance: Float[Tensor, " contrast"]
    samples: Float[Tensor, ""]  # how many samples of equal weight they rest on
    within: Float[Tensor, "latent latent"] | None = None  # covariance within classes, where only nuisances are meant

    @property
    def spread(self) -> Float[Tensor, " latent"]:
        """Return the standard deviation of each axis. A constant axis has a tiny one instead of 0."""
        return self.variance.clamp_min(EPS).sqrt()

    @property
    def shared(self) -> Float[Tensor, "contrast latent"]:
        """Return the covariance with the label in units of the label's deviation: correlation times spread."""
        return self.with_label / (self.label_variance + EPS).sqrt().unsqueeze(-1)

    @property
    def correlation(self) -> Float[Tensor, "contrast latent"]:
        """Return the signed Pearson correlation of each axis with the label (Eq. 2, no modulus)."""
        return self.shared / self.spread


def label_moments(
    mu: Float[Tensor, "batch latent"],
    y: Int[Tensor, " batch"],
    num_classes: int,
    weight: Float[Tensor, " batch"] | None = None,
) -> LabelMoments:
    """Return the moments of a latent and its labels over the global batch.

    With torch.distributed the sums are those of all processes. Weights need not sum to anything.

    >>> moments = label_moments(torch.tensor([[0.0, 3.0], [2.0, 3.0]]), torch.tensor([0, 1]), num_classes=2)
    >>> moments.mean, moments.spread, moments.correlation
    (tensor([1., 3.]), tensor([1.0000e+00, 1.0000e-04]), tensor([[1., 0.]]))
    """
    mu = mu.detach().float()
    target = one_hot(y, num_classes).to(mu.dtype)
    if num_classes == 2:
        target = target[:, 1:]
    w = torch.ones_like(mu[:, :1]) if weight is None else weight.detach().to(mu.dtype).unsqueeze(1)

    total = global_sum(w.sum())
    mean_mu = global_sum((w * mu).sum(0)) / total
    mean_target = global_sum((w * target).sum(0)) / total

    mu, target = mu - mean_mu, target - mean_target
    with torch.autocast(mu.device.type, enabled=False):  # in float32 also under mixed precision
        with_label = global_sum((w * target).T @ mu) / total
    variance = global_sum((w * mu.square()).sum(0)) / total
    label_variance = global_sum((w * target.square()).sum(0)) / total
    samples = total.square() / global_sum(w.square().sum())
    return LabelMoments(mean_mu, mean_target, variance, with_label, label_variance, samples)


def label_correlation(
    mu: Float[Tensor, "batch latent"],
    y: Int[Tensor, " batch"],
    num_classes: int,
    weight: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, "contrast latent"]:
    """Return the signed Pearson correlation of each axis with the label, over the global batch (Eq. 2, no modulus).

    Two classes give one row, the correlation with y. More classes give one row for each class against the rest. A
    constant axis or a batch of one class gives 0. The result carries no gradient.

    >>> label_correlation(torch.tensor([[0.0, 3.0], [2.0, 3.0]]), torch.tensor([1, 0]), num_classes=2)
    tensor([[-1.,  0.]])
    """
    return label_moments(mu, y, num_classes, weight).correlation


def pooled_moments(first: LabelMoments, second: LabelMoments, share: Float[Tensor, ""]) -> LabelMoments:
    """Return the moments of two sets of samples together, where the second has this share of the weight.

    The sets may have different means. What lies between the means is part of the pooled variance.
    """
    step, label_step = second.mean - first.mean, second.label_mean - first.label_mean
    both = share * (1 - share)

    def average(a: Tensor, b: Tensor) -> Tensor:
        return (1 - share) * a + share * b

    return LabelMoments(
        mean=first.mean + share * step,
        label_mean=first.label_mean + share * label_step,
        variance=average(first.variance, second.variance) + both * step.square(),
        with_label=average(first.with_label, second.with_label) + both * torch.outer(label_step, step),
        label_variance=average(first.label_variance, second.label_variance) + both * label_step.square(),
        samples=1 / ((1 - share).square() / first.samples + share.square() / second.samples),
    )


def along_nuisances(
    moments: LabelMoments, projection: Float[Tensor, "latent latent"], within: Float[Tensor, "latent latent"]
) -> LabelMoments:
    """Keep of the covariances with the label what lies along nuisances (`functional.nuisance`)."""
    return replace(moments, with_label=moments.with_label @ projection, within=within)


def without_chance(moments: LabelMoments) -> LabelMoments:
    """Take from each squared correlation what chance gives it in n samples: v^2 becomes max(0, v^2 - 1/n).

    >>> moments = label_moments(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]), num_classes=2)
    >>> without_chance(moments).correlation.square()
    tensor([[0.5000]])
    """
    chance = 1 / (moments.samples * moments.correlation.square().clamp_min(EPS))
    return replace(moments, with_label=moments.with_label * (1 - chance).clamp_min(0).sqrt())


def shortcut_score(correlation: Float[Tensor, "contrast latent"]) -> Float[Tensor, " latent"]:
    """Return the score v of each axis: its largest absolute correlation over the contrasts (Eq. 2).

    >>> shortcut_score(torch.tensor([[0.1, -0.8], [0.3, 0.2]]))
    tensor([0.3000, 0.8000])
    """
    return correlation.abs().amax(0)
