"""SITAR: a joint beta-VAE and classifier that is shaken along the latent axes which track the label (Algorithm 1).

Departures: see docs/methods/sitar.md. `noise: axis` with Gaussian noise is the paper; alpha = lambda = 0 the control.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sitar.config import Config, ModelConfig
from sitar.data.base import Task, TrainBatch
from sitar.functional.correlation import label_correlation, shortcut_score
from sitar.functional.losses import consistency, cross_entropy, gaussian_kl, reconstruction, reparameterise
from sitar.functional.noise import Distribution, axis_noise, direction_noise, swap_noise
from sitar.methods.base import (
    GradientPhase,
    Method,
    Objective,
    Phase,
    balanced_weights,
    build_classifier,
    build_vae,
)
from sitar.registry import METHODS


class SITARConfig(Config):
    name: Literal["sitar"] = "sitar"
    alpha: float = Field(default=1.0, ge=0, description="strength of the noise")
    beta: float = Field(default=2.0, ge=0, description="weight of the KL divergence")
    lambda_: float = Field(default=10.0, ge=0, alias="lambda", description="weight of the consistency term")
    noise: Literal["axis", "direction", "swap", "isotropic"] = Field(
        default="axis",
        description="axis: the paper; direction: along the correlated direction; swap: exchange that component with "
        "another sample's; isotropic: v = 1",
    )
    noise_distribution: Distribution = Field(default="gaussian", description="not used by swap")
    class_weight: Literal["balanced"] | None = Field(
        default=None, description="balanced: weights the cross-entropy and the correlation alike"
    )
    beta_start: float | None = Field(default=None, ge=0, description="beta in the first epoch; null: no annealing")
    beta_anneal_epochs: int = Field(default=20, gt=0, description="epochs in which beta goes linearly to its value")

    @model_validator(mode="after")
    def _known_distribution(self) -> SITARConfig:
        if self.noise == "swap" and self.noise_distribution != "gaussian":
            raise ValueError("swap draws no noise: leave noise_distribution out, or use another noise")
        return self


@METHODS.register("sitar")
class SITAR(Method):
    Config = SITARConfig
    class_weight: Tensor | None
    beta: Tensor

    def __init__(self, config: SITARConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        self.config = config
        self.num_classes = task.num_classes
        self.vae = build_vae(model, task)
        self.classifier = build_classifier(model, task)
        self.register_buffer("class_weight", balanced_weights(task) if config.class_weight else None)
        self.register_buffer("beta", torch.tensor(config.beta))

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(self.loss, list(self.parameters())),))

    def begin_epoch(self, epoch: int) -> None:
        if self.config.beta_start is not None:
            progress = min(1.0, epoch / self.config.beta_anneal_epochs)
            self.beta.fill_(self.config.beta_start + progress * (self.config.beta - self.config.beta_start))

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Lines 5 to 13 of Algorithm 1."""
        mu, log_var = self.vae.encode(batch.x)
        z = reparameterise(mu, log_var)
        error = reconstruction(self.vae.decode(z), batch.x)
        kl = gaussian_kl(mu, log_var)
        weight = None if self.class_weight is None else self.class_weight[batch.y]
        correlation = label_correlation(mu.detach(), batch.y, self.num_classes, weight)
        shaken = z + self.config.alpha * self.noise(z, correlation)
        logits, shaken_logits = self.classifier(z), self.classifier(shaken)
        robust = cross_entropy(shaken_logits, batch.y, self.class_weight)
        change = consistency(logits, shaken_logits)
        return {
            "loss": error + self.beta * kl + robust + self.config.lambda_ * change,
            "reconstruction": error,
            "kl": kl,
            "cross_entropy": robust,
            "consistency": change,
            "shortcut_score": shortcut_score(correlation),
        }

    def noise(self, z: Tensor, correlation: Tensor) -> Tensor:
        """The perturbation of line 11, before the factor alpha."""
        distribution = self.config.noise_distribution
        match self.config.noise:
            case "axis":
                return axis_noise(z, shortcut_score(correlation), distribution)
            case "direction":
                return direction_noise(z, correlation, distribution)
            case "swap":
                return swap_noise(z, correlation)
            case "isotropic":
                return axis_noise(z, torch.ones_like(correlation[0]), distribution)

    def logits(self, x: Tensor) -> Tensor:
        """f(mu): the posterior mean, no noise."""
        mu, _ = self.vae.encode(x)
        return self.classifier(mu)
