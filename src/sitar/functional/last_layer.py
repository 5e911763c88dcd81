"""Fit a weighted logistic regression that stays close to where it starts: the convex part of last-layer methods.

It is solved, or approached by a number of steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from sitar.functional.precision import in_float64


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
    theta, objective = _objective(features, y, sample_weight, weight, bias, l2)
    solver = torch.optim.LBFGS(theta, max_iter=steps, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure() -> float:
        solver.zero_grad()
        value = objective()
        value.backward()
        return value.item()

    solver.step(closure)
    return theta[0].detach().to(weight), theta[1].detach().to(bias)


def approach_last_layer(
    features: Float[Tensor, "sample feature"],
    y: Int[Tensor, " sample"],
    sample_weight: Float[Tensor, " sample"],
    weight: Float[Tensor, "classes feature"],
    bias: Float[Tensor, " classes"],
    *,
    l2: float,
    steps: int,
    rate: float,
    longest: float = 1.0,
) -> tuple[Float[Tensor, "classes feature"], Float[Tensor, " classes"]]:
    """Return the weight and bias after some full-batch steps of gradient descent on the same objective.

    A gradient that is longer than `longest` is cut to this length.
    """
    theta, objective = _objective(features, y, sample_weight, weight, bias, l2)
    descent = torch.optim.SGD(theta, lr=rate)
    for _ in range(steps):
        descent.zero_grad()
        with torch.enable_grad():
            objective().backward()
        torch.nn.utils.clip_grad_norm_(theta, longest)
        descent.step()
    return theta[0].detach().to(weight), theta[1].detach().to(bias)


def _objective(
    features: Tensor, y: Tensor, sample_weight: Tensor, weight: Tensor, bias: Tensor, l2: float
) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """Return a weight and a bias that can be moved, in float64, and the objective as a function of them."""
    start = [in_float64(weight.detach()), in_float64(bias.detach())]
    theta = [tensor.clone().requires_grad_() for tensor in start]
    features, sample_weight = in_float64(features.detach()), in_float64(sample_weight.detach())
    y = y.to(features.device)

    def objective() -> Tensor:
        losses = F.cross_entropy(F.linear(features, *theta), y, reduction="none")
        away = sum((now - before).square().sum() for now, before in zip(theta, start, strict=True))
        return sample_weight @ losses + l2 * away

    return theta, objective
