"""Does Theorem 1 describe a trained classifier? Its prediction and the exact objective, as alpha shrinks."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from sitar.analysis.latents import posterior_means
from sitar.analysis.samples import HELD_OUT, check_same_data, held_out, permutation
from sitar.config import run_config
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.functional.cubature import Rule, UnitNoise, draws, grid
from sitar.functional.expansion import Expected, exact, expand, fitted_order, local_orders
from sitar.functional.noise import NOISES, WITH_ROWS
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.registry import unknown
from sitar.run_folder import RunFolder

GRID_POINTS = 4096  # the largest grid; with more axes draws take its place
DRAWS = 2048
BATCHES = 20  # of training samples, from which the noise is computed
ALPHAS = tuple(2.0**-k for k in range(9))
ROUNDING = 1e-13  # relative to the objective: a remainder below it is rounding


def examine_theory(
    folder: RunFolder, device: str = "auto", noise: str | None = None, samples: int = 128
) -> dict[str, Any]:
    """Compute every term of Theorem 1 for a finished run with noise, as means over held-out samples.

    The latents are posterior means. The noise is computed as in training, batch by batch, with the weights that the run
    kept. A remainder is the mean over samples of its absolute value, so that samples cannot cancel each other. `noise`
    takes the place of the run's own.
    """
    folder.result()  # refuses a run that is not finished
    config = run_config(folder.read_config())
    if config.refit is not None:
        raise RunError(
            f"The last layer of {str(folder.path)!r} was fitted again (`sitar refit`). Theorem 1 is about a classifier "
            "that was trained with noise: examine the run that it was made of."
        )
    settings = config.method
    kind = _noise_kind(settings, folder, noise)
    assert isinstance(settings, SITARConfig)
    model = TrainedModel(folder, device, config=config)
    check_same_data(model)
    assert isinstance(model.method, SITAR)

    x, y = held_out(model, samples, mixed=True)
    z = posterior_means(model, x).double()
    A = _noise_rows(model, kind)
    f = copy.deepcopy(model.method.classifier).cpu().double().requires_grad_(False)
    weight = model.method.cpu().sample_weight(y)
    weight = torch.ones(len(y)) if weight is None else weight / weight.mean()

    def objective(expected: Expected) -> Tensor:
        return weight * expected.cross_entropy + settings.lambda_ * expected.consistency

    terms = expand(f, z, y, A)
    alphas = torch.tensor(sorted({settings.alpha, *ALPHAS}), dtype=torch.float64)
    predicted = torch.stack([objective(terms.at(alpha)) for alpha in alphas.tolist()])

    def compare(distribution: UnitNoise) -> dict[str, Any]:
        rule = _rule(distribution, len(A))
        truth = torch.stack([objective(exact(f, z, y, A, alpha, rule)) for alpha in alphas.tolist()])
        remainder = (truth - predicted).abs().mean(1)
        rounding = ROUNDING * float(truth.mean())
        smooth = model.config.model.activation != "relu"  # else the theorem promises no order
        return {
            "distribution": distribution,
            "points": len(rule.points),
            "exact": truth.mean(1).tolist(),
            "remainder": remainder.tolist(),
            "rounding": rounding,
            "order": fitted_order(alphas, remainder, rounding) if smooth else None,
            "local_orders": local_orders(alphas, remainder, rounding) if smooth else [],
        }

    return {
        "split": HELD_OUT,
        "samples": len(y),
        "noise": kind,
        "noise_scale": A.square().sum(0).sqrt().tolist(),  # v, for noise along the axes
        "activation": model.config.model.activation,
        "alpha": settings.alpha,
        "lambda": settings.lambda_,
        "clean": float((weight * terms.clean).mean()),
        "alphas": alphas.tolist(),
        "predicted": predicted.mean(1).tolist(),
        "terms": {
            "jacobian_cross_entropy": (alphas**2 * (weight * terms.robust).mean()).tolist(),
            "jacobian_consistency": (alphas**2 * settings.lambda_ * terms.change.mean()).tolist(),
            "curvature": (alphas**2 * (weight * terms.curvature).mean()).tolist(),
        },
        "comparisons": [compare(settings.noise_distribution), compare("skewed")],
    }


def _noise_kind(settings: Any, folder: RunFolder, noise: str | None) -> str:
    """Return the noise to expand in. A run that the theorem says nothing about is refused."""
    if not isinstance(settings, SITARConfig):
        raise RunError(
            f"Theorem 1 is about SITAR's noise on the latent, and the run in {str(folder.path)!r} is of another "
            f"method, {settings.name!r}. Name a run of SITAR."
        )
    if settings.alpha == 0:
        raise RunError(
            f"The run in {str(folder.path)!r} is the control (method.alpha = 0): without noise there is nothing to "
            "expand. Name a run of SITAR with noise."
        )
    if noise is not None and noise not in WITH_ROWS:
        raise unknown("noise", noise, WITH_ROWS)
    if noise is None and (reason := NOISES[settings.noise].no_rows) is not None:
        raise RunError(
            f"The run in {str(folder.path)!r} was trained with {settings.noise} noise, and Theorem 1 asks for noise of "
            f"mean 0: {reason}. See what the theorem says of this classifier under other noise: "
            f"{' or '.join(f'--noise {name}' for name in WITH_ROWS)}."
        )
    return noise or settings.noise


def _noise_rows(model: TrainedModel, noise: str) -> Tensor:
    """Compute the noise's A, averaged over batches of training samples as training draws them."""
    train, size = model.data.train, model.config.train.batch_size
    index = permutation(len(train))[: BATCHES * size]  # mixed, as training mixes: a split may be sorted by class
    mu, y = posterior_means(model, train.x[index]), train.y[index].cpu()
    assert isinstance(model.method, SITAR)
    rows = []
    for latents, labels in zip(mu.split(size), y.split(size), strict=True):
        if len(latents) == min(size, len(mu)):  # a shorter last batch would be noisier
            moments = model.method.moments(latents.to(model.device), labels.to(model.device))
            rows.append(NOISES[noise].rows(moments).cpu())
    return torch.stack(rows).mean(0).double()


def _rule(distribution: UnitNoise, axes: int) -> Rule:
    """Return a grid of points for the expectation, or draws where a grid would be too large."""
    nodes = 16 if distribution in ("gaussian", "uniform") else 2
    if nodes**axes <= GRID_POINTS:
        return grid(distribution, axes, nodes)
    return draws(distribution, axes, max(DRAWS, 4 * axes))
