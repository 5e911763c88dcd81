"""Risks other than the mean: of the worst share of samples, and of groups or environments of samples."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot


def cvar(losses: Float[Tensor, " batch"], share: float) -> Float[Tensor, ""]:
    """Mean of the largest `share` of the losses (conditional value at risk).

    Where `share` of the batch is not a whole number, the last loss counts with the fraction that is left, so that it
    equals min over eta of eta + mean(max(loss - eta, 0)) / share. A share of 1 is the mean.
    """
    size = share * len(losses)
    taken = (size - torch.arange(len(losses), device=losses.device)).clamp(0, 1)
    return (taken * losses.sort(descending=True).values).sum() / size


def group_risks(
    losses: Float[Tensor, " batch"], group: Int[Tensor, " batch"], num_groups: int
) -> tuple[Float[Tensor, " group"], Bool[Tensor, " group"]]:
    """Mean loss of each group, and which groups the batch has; 0 for those it does not have."""
    member = one_hot(group, num_groups).to(losses.dtype)
    count = member.sum(0)
    totals = (losses.unsqueeze(1) * member).sum(0)  # no matrix product, which mixed precision would round
    return totals / count.clamp_min(1), count > 0


def mean_risk(risks: Float[Tensor, " group"], present: Bool[Tensor, " group"]) -> Float[Tensor, ""]:
    """Mean over the groups that are present, each counting once."""
    return (risks * present).sum() / present.sum().clamp_min(1)


def risk_variance(risks: Float[Tensor, " group"], present: Bool[Tensor, " group"]) -> Float[Tensor, ""]:
    """Variance of the risks over the groups that are present: V-REx's penalty (Krueger et al., 2021)."""
    return mean_risk((risks - mean_risk(risks, present)).square(), present)


def scale_gradient(logits: Float[Tensor, "batch classes"], y: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """d/dw of every sample's cross-entropy of w * logits at w = 1, in closed form: sum_c (p_c - [y = c]) logit_c.

    Its mean over an environment, squared, is IRMv1's penalty (Arjovsky et al., 2019).
    """
    wrong = logits.softmax(1) - one_hot(y, logits.shape[1])
    return (wrong * logits).sum(1)
