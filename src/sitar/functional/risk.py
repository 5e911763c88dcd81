"""Compute risks of the global batch other than the mean: of its worst share, and of groups or environments."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from sitar.functional.reduce import batch_sum, gathered


def cvar(
    losses: Float[Tensor, " batch"], share: float, weight: Float[Tensor, " batch"] | None = None
) -> Float[Tensor, ""]:
    """Return the mean of the largest `share` of the losses (conditional value at risk).

    With weights, it is that share of the total weight. If the share ends within a loss, this loss counts with the
    fraction that is left. The result then equals min over eta of eta + mean(max(loss - eta, 0)) / share, with a
    weighted mean if there are weights. A share of 1 gives the mean.

    >>> cvar(torch.tensor([1.0, 4.0, 2.0, 3.0]), share=0.5)
    tensor(3.5000)
    """
    weight = gathered(torch.ones_like(losses) if weight is None else weight)
    losses = gathered(losses)
    order = losses.argsort(descending=True)
    weight, losses = weight[order], losses[order]
    size = share * weight.sum()
    before = weight.cumsum(0) - weight
    taken = torch.minimum((size - before).clamp_min(0), weight)
    return (taken * losses).sum() / size


def group_risks(
    losses: Float[Tensor, " batch"],
    group: Int[Tensor, " batch"],
    num_groups: int,
    weight: Float[Tensor, " batch"] | None = None,
) -> tuple[Float[Tensor, " group"], Bool[Tensor, " group"]]:
    """Return the (weighted) mean loss of each group, and which groups the batch has. An absent group has risk 0.

    >>> group_risks(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 2]), num_groups=3)
    (tensor([2., 0., 5.]), tensor([ True, False,  True]))
    """
    member = one_hot(group, num_groups).to(losses.dtype)
    present = batch_sum(member.sum(0)) > 0
    member = member if weight is None else member * weight.unsqueeze(1)
    totals = batch_sum((losses.unsqueeze(1) * member).sum(0))  # no matrix product, which mixed precision would round
    return totals / torch.where(present, batch_sum(member.sum(0)), 1), present


def mean_risk(risks: Float[Tensor, " group"], present: Bool[Tensor, " group"]) -> Float[Tensor, ""]:
    """Return the mean over the groups that are present. Each counts once."""
    return (risks * present).sum() / present.sum().clamp_min(1)


def risk_variance(risks: Float[Tensor, " group"], present: Bool[Tensor, " group"]) -> Float[Tensor, ""]:
    """Return the variance of the risks over the groups that are present: V-REx's penalty (Krueger et al., 2021)."""
    return mean_risk((risks - mean_risk(risks, present)).square(), present)


def scale_gradient(logits: Float[Tensor, "batch classes"], y: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Return d/dw of every sample's cross-entropy of w * logits at w = 1: sum_c (p_c - [y = c]) logit_c.

    Its mean over an environment, squared, is IRMv1's penalty (Arjovsky et al., 2019).
    """
    wrong = logits.softmax(1) - one_hot(y, logits.shape[1])
    return (wrong * logits).sum(1)
