"""Compute how far several heads agree on inputs without labels (DivDis, D-BAT, ACE).

A head predicts a distribution over classes for every input: (batch, head, class). In a training step all means are
those of the global batch.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sitar.functional.reduce import gathered, global_mean

EPS = 1e-7  # inside D-BAT's logarithm, as its authors have it


def mutual_information(p: Float[Tensor, "batch head class"]) -> Float[Tensor, ""]:
    """Return the mutual information of two heads' predictions over a batch, in nats: the mean over pairs of heads.

    >>> same = torch.eye(2).unsqueeze(1).expand(2, 2, 2)  # two inputs, two heads, sure and of one opinion
    >>> mutual_information(same)
    tensor(0.6931)
    """
    heads, p = p.shape[1], p.to(torch.promote_types(p.dtype, torch.float32))
    with torch.autocast(p.device.type, enabled=False):  # a difference of almost equal numbers
        joint = global_mean(torch.einsum("bhc,bgd->hgcd", p, p) / len(p))
        marginal = global_mean(p.mean(0))
        apart = torch.einsum("hc,gd->hgcd", marginal, marginal)
    information = (joint * (_log(joint) - _log(apart))).sum((2, 3))
    first, second = torch.triu_indices(heads, heads, 1, device=p.device)
    return information[first, second].mean()


def marginal_divergence(p: Float[Tensor, "batch head class"], reference: Float[Tensor, " class"]) -> Float[Tensor, ""]:
    """Return KL(mean prediction || reference), in nats: the mean over heads."""
    marginal = global_mean(p.mean(0))
    return (marginal * (_log(marginal) - _log(reference))).sum(1).mean()


def agreement(first: Float[Tensor, "batch class"], second: Float[Tensor, "batch class"]) -> Float[Tensor, ""]:
    """Return -log P(one of two predictions is the class that the first prefers, and the other is not): a batch's mean.

    It is 0 where they surely disagree. For two classes this is -log P(they disagree).

    >>> agreement(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    tensor(0.6931)
    """
    p, preferred = first.max(1)
    q = second.gather(1, preferred.unsqueeze(1)).squeeze(1)
    return global_mean(-torch.log(p * (1 - q) + q * (1 - p) + EPS).mean())


def disagreement_losses(log_p: Float[Tensor, "batch 2 class"]) -> Float[Tensor, "batch pair"]:
    """Return the cross-entropy of two heads if they had two different labels, for every such pair of labels."""
    losses = -(log_p[:, 0, :, None] + log_p[:, 1, None, :])
    classes = range(log_p.shape[2])
    apart = [(a, b) for a in classes for b in classes if a != b]
    return torch.stack([losses[:, a, b] for a, b in apart], 1)


def smallest_mean(losses: Float[Tensor, "batch column"], share: Float[Tensor, ""]) -> Float[Tensor, " column"]:
    """Return the mean of the smallest `share` of the losses of each column. It is 0 if the share is of no sample.

    >>> smallest_mean(torch.tensor([[3.0], [1.0], [2.0], [9.0]]), torch.tensor(0.5))
    tensor([1.5000])
    """
    losses = gathered(losses)
    n = len(losses)
    kept = (n * share).round()
    taken = torch.arange(n, device=losses.device).unsqueeze(1) < kept
    return torch.where(taken, losses.sort(0).values, 0.0).sum(0) / kept.clamp_min(1)


def _log(p: Tensor) -> Tensor:
    """Return log p, finite where p is 0: the term that it stands in is then 0."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()
