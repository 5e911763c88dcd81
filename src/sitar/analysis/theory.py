"""Does Theorem 1 describe a trained classifier? Its prediction and the exact objective, as alpha shrinks."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from sitar.analysis.samples import check_same_data, no_held_out
from sitar.config import run_config
from sitar.data.types import in_batches
from sitar.errors import RunError
from sitar.evaluation.trained_model import TrainedModel
from sitar.functional.correlation import label_correlation
from sitar.functional.cubature import Rule, UnitNoise, draws, grid
from sitar.functional.expansion import Expected, exact, expand, fitted_order, local_orders
from sitar.functional.noise import NOISES, WITH_ROWS
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.registry import unknown
from sitar.run_folder import RunFolder

GRID_POINTS = 4096  # the largest grid; with more axes draws take its place
DRAWS = 2048
BATCHES = 20  # of training samples, from which v is computed
ALPHAS = tuple(2.0**-k for k in range(9))
ROUNDING = 1e-13  # relative to the objective: a remainder below it is not one


def examine_theory(
    folder: RunFolder, device: str = "auto", noise: str | None = None, samples: int = 128
) -> dict[str, Any]:
    """Means over held-out samples of every term of Theorem 1, for a finished run with noise; plain values.

    The latents are posterior means. v is computed as in training, batch by batch, with the weights that the run kept.
    A remainder is the mean over samples of its modulus, so that samples cannot cancel each other. `noise` takes the
    place of the run's own.
    """
    folder.result()  # refuses a run that is not finished
    settings = run_config(folder.read_config()).method
    kind = _noise(settings, folder, noise)
    assert isinstance(settings, SITARConfig)
    model = TrainedModel(folder, device)
    check_same_data(model)
    assert isinstance(model.method, SITAR)

    y, z = _held_out(model, samples)
    A = _rows(model, kind)
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
        "split": "val",
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


def _noise(settings: Any, folder: RunFolder, noise: str | None) -> str:
    """Which noise to expand in, or why the theorem says nothing about this run."""
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


def _held_out(model: TrainedModel, samples: int) -> tuple[Tensor, Tensor]:
    split = model.data.evaluation.get("val")
    if split is None or len(split) == 0:
        raise no_held_out(model, "and the theorem is held against samples that were not trained on")
    index = _some(len(split), samples)
    return split.y[index], _means(model, split.x[index])


def _rows(model: TrainedModel, noise: str) -> Tensor:
    """The noise's A, averaged over batches of training samples as training draws them."""
    train, size = model.data.train, model.config.train.batch_size
    index = _some(len(train), BATCHES * size)
    mu, y = _means(model, train.x[index]).float(), train.y[index].cpu()
    assert isinstance(model.method, SITAR)
    class_weight = model.method.class_weight
    rows = []
    for some, labels in zip(mu.split(size), y.split(size), strict=True):
        if len(some) == min(size, len(mu)):  # a shorter last batch would be noisier
            weight = None if class_weight is None else class_weight.cpu()[labels]
            rows.append(NOISES[noise].rows(label_correlation(some, labels, len(model.classes), weight)))
    return torch.stack(rows).mean(0).double()


def _some(size: int, count: int) -> Tensor:
    """Indices of samples, the same in every call: a split may be sorted by class."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(0))[:count]


def _means(model: TrainedModel, x: Tensor) -> Tensor:
    """Posterior means in float64 of inputs as a split stores them."""
    method = model.method
    assert isinstance(method, SITAR)
    x = x if model.encoder is None else model.encoder(x)
    mu = in_batches(lambda some: method.vae.encode(some)[0], x, model.device, method.evaluation_batch)
    return mu.cpu().double()


def _rule(distribution: UnitNoise, axes: int) -> Rule:
    nodes = 16 if distribution in ("gaussian", "uniform") else 2
    if nodes**axes <= GRID_POINTS:
        return grid(distribution, axes, nodes)
    return draws(distribution, axes, max(DRAWS, 4 * axes))
