"""Compute expectations over noise as weighted sums over points: exact grids for few axes, balanced draws for many."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

from sitar.functional.noise import Distribution

UnitNoise = Distribution | Literal["skewed"]
SKEWED = {2.0: 0.2, -0.5: 0.8}  # mean 0, variance 1, third moment 1.5


class Rule(NamedTuple):
    """A rule replaces E[h(e)] by the sum over points of weight * h(point).

    The axes of e are independent, with mean 0 and variance 1.
    """

    points: Float[Tensor, "point axis"]
    weights: Float[Tensor, " point"]


def grid(distribution: UnitNoise, axes: int, nodes: int = 16) -> Rule:
    """Combine Gauss quadrature on all axes: nodes ** axes points, and 2 ** axes for two-valued noise.

    The rule is exact for polynomials of degree 2 * nodes - 1 in each axis. For two-valued noise it is always exact.
    """
    values, weights = (torch.from_numpy(part) for part in _one_axis(distribution, nodes))
    every = torch.cartesian_prod(*[torch.arange(len(values))] * axes).reshape(-1, axes)
    return Rule(values[every], weights[every].prod(1))


def draws(distribution: UnitNoise, axes: int, count: int = 2048) -> Rule:
    """Return quasi-random draws of mean exactly 0 and covariance exactly I. They are the same at every call.

    Symmetric noise comes in pairs e and -e, so that all odd moments vanish. A second-order expansion then holds under
    the rule as it does under the distribution. What is left over is a remainder, and no sampling error.
    """
    if count < 2 * axes:
        raise ValueError(f"{count} draws cannot be balanced on {axes} axes: take {2 * axes} or more")
    symmetric = distribution != "skewed"
    uniform = SobolEngine(axes, scramble=True, seed=0).draw(count // 2 if symmetric else count, dtype=torch.float64)
    points = _quantile(distribution, uniform.clamp(1e-9, 1 - 1e-9))
    points = torch.cat([points, -points]) if symmetric else points - points.mean(0)
    root = torch.linalg.cholesky(points.T @ points / len(points))
    points = torch.linalg.solve_triangular(root, points.T, upper=False).T
    return Rule(points, torch.full((len(points),), 1 / len(points), dtype=torch.float64))


def _one_axis(distribution: UnitNoise, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    match distribution:
        case "gaussian":
            values, weights = np.polynomial.hermite_e.hermegauss(nodes)
        case "uniform":
            values, weights = np.polynomial.legendre.leggauss(nodes)
            values = values * math.sqrt(3)
        case "rademacher":
            values, weights = np.array([-1.0, 1.0]), np.array([0.5, 0.5])
        case "skewed":
            values, weights = np.array([*SKEWED]), np.array([*SKEWED.values()])
    return values, weights / weights.sum()


def _quantile(distribution: UnitNoise, uniform: Tensor) -> Tensor:
    match distribution:
        case "gaussian":
            return torch.special.ndtri(uniform)
        case "uniform":
            return (2 * uniform - 1) * math.sqrt(3)
        case "rademacher":
            return torch.where(uniform < 0.5, -1.0, 1.0).to(uniform.dtype)
        case "skewed":
            (high, share), (low, _) = SKEWED.items()
            return torch.where(uniform < share, high, low).to(uniform.dtype)
