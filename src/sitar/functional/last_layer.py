"""Fit a weighted logistic regression that stays close to where it starts: the convex part of last-layer methods."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


def fit_last_layer(
    features: Float[Tensor, "sample feature"],
    y: Int[Tensor, " sample"],
    sample_weight: Float[Tensor, " sample"],
    weight: Float[Tensor, "classes feature"],
    bias: Float[Tensor, " classes"],
    *,
    l2: float,
    steps: int = 500,
) -> tuple[Float[Tensor, "classes feature"], Float[Tensor, " classes"]]:
    """Return the weight and bias that minimise sum_i w_i CE_i + l2 |theta - theta_0|^2. theta_0 are those given.

    The problem is convex. L-BFGS solves it in float64, so that the answer does not depend on a learning rate.
    """
    start = [weight.detach().double(), bias.detach().double()]
    theta = [tensor.clone().requires_grad_() for tensor in start]
    features, sample_weight = features.detach().double(), sample_weight.detach().double()
    solver = torch.optim.LBFGS(theta, max_iter=steps, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        losses = F.cross_entropy(F.linear(features, *theta), y, reduction="none")
        away = sum((now - before).square().sum() for now, before in zip(theta, start, strict=True))
        return sample_weight @ losses + l2 * away

    def closure() -> float:
        solver.zero_grad()
        value = objective()
        value.backward()
        return value.item()

    solver.step(closure)
    return theta[0].detach().to(weight.dtype), theta[1].detach().to(bias.dtype)
