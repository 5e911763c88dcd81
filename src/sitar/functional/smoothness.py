"""Penalise how fast a function changes in all directions. Unlike SITAR, these penalties know no suspects."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from sitar.functional.draws import normal_like
from sitar.functional.reduce import global_mean

Function = Callable[[Tensor], Tensor]
EPS = 1e-12


def jacobian_norm(f: Function, x: Float[Tensor, "batch *shape"], projections: int = 1) -> Float[Tensor, ""]:
    """Estimate the squared Frobenius norm of the Jacobian of `f`, averaged over the batch (Hoffman et al., 2019).

    The estimate is unbiased: C times the squared length of J^T u, for random unit vectors u in the C outputs.
    """
    y, pull_back = torch.func.vjp(f, x)  # type: ignore[reportAssignmentType]
    total = torch.zeros_like(y[:, 0])
    for _ in range(projections):
        direction = normal_like(y.detach())
        direction = direction / direction.norm(dim=1, keepdim=True).clamp_min(EPS)
        (pulled,) = pull_back(direction)
        total = total + y.shape[1] * pulled.flatten(1).square().sum(1)
    return global_mean(total.mean() / projections)


def gradient_change(loss: Function, x: Float[Tensor, "batch *shape"], step: float) -> Float[Tensor, ""]:
    """Return the squared change of the input gradient over a step, averaged over the batch.

    See Moosavi-Dezfooli et al. (2019). `loss` is the **sum** over the batch, so that each row of its gradient belongs
    to one sample. The step has the length `step` and goes along the sign of the gradient. It carries no gradient
    itself.
    """
    gradient = torch.func.grad(loss)
    here = gradient(x)
    direction = here.detach().sign()
    length = direction.flatten(1).norm(dim=1).clamp_min(EPS).view(-1, *[1] * (x.ndim - 1))
    there = gradient(x + step * direction / length)
    return global_mean((there - here).flatten(1).square().sum(1).mean())
