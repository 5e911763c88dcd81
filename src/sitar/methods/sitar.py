"""SITAR trains a beta-VAE and a classifier together, and perturbs the latent axes that track the label (Algorithm 1).

`noise: axis` with Gaussian noise is the paper. alpha = lambda = 0 is the control.
Departures: docs/methods/sitar.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from sitar.config import ModelConfig, one_of
from sitar.data.types import Task, TrainBatch
from sitar.functional.correlation import LabelMoments, label_moments, shortcut_score, without_chance
from sitar.functional.disentangle import density_ratio, discrimination, kl_parts, permute_axes
from sitar.functional.expansion import expand
from sitar.functional.losses import (
    consistency,
    cross_entropy,
    gaussian_kl,
    reconstruction,
    reparameterise,
    weighted_mean,
)
from sitar.functional.noise import NOISES, WITH_ROWS, Distribution
from sitar.methods.base import Bottleneck, GradientPhase, Objective, Phase, WeightedConfig, WeightedMethod
from sitar.models import Discriminator
from sitar.models.build import build_classifier, build_vae
from sitar.registry import METHODS

DISCRIMINATOR_RATE = 1e-4  # of FactorVAE (Kim and Mnih, 2018)


class SITARConfig(WeightedConfig):
    name: Literal["sitar"] = "sitar"
    alpha: float = Field(default=1.0, ge=0, description="strength of the noise")
    vae: Literal["beta", "tc", "factor"] = Field(
        default="beta", description="beta: the paper; tc: beta-TCVAE; factor: FactorVAE"
    )
    beta: float = Field(
        default=2.0, ge=0, description="weight of the KL divergence; with tc and factor of the total correlation alone"
    )
    vae_scale: Literal["sum", "mean"] = Field(
        default="sum",
        description="sum: the VAE's terms as in Algorithm 1; mean: divided by the number of pixels or features, so "
        "that they do not drown the classifier's in a pretrained encoder",
    )
    lambda_: float = Field(default=10.0, ge=0, alias="lambda", description="weight of the consistency term")
    noise: Annotated[str, one_of(lambda: NOISES)] = Field(
        default="axis", description="; ".join(f"{noise.name}: {noise.about}" for noise in NOISES.values())
    )
    noise_distribution: Distribution = Field(
        default="gaussian", description="not used by noise that draws nothing, nor by analytic"
    )
    score_floor: bool = Field(
        default=False, description="whether to take from v^2 what chance gives it, 1/n; false: the paper"
    )
    objective: Literal["sampled", "analytic"] = Field(
        default="sampled",
        description="sampled: one draw of noise a sample and step, the paper; analytic: its expectation by Theorem 1",
    )

    @model_validator(mode="after")
    def _known_distribution(self) -> SITARConfig:
        noise = NOISES[self.noise]
        if not noise.has_distribution and self.noise_distribution != "gaussian":
            raise ValueError(f"{self.noise} draws no noise: leave noise_distribution out, or use another noise")
        if noise.no_rows is not None and self.objective == "analytic":
            raise ValueError(
                f"analytic needs noise of mean 0 (Theorem 1), and {noise.no_rows}: use noise="
                f"{', '.join(WITH_ROWS[:-1])} or {WITH_ROWS[-1]}, or objective=sampled"
            )
        if self.objective == "analytic" and self.noise_distribution != "gaussian":
            raise ValueError(
                "analytic depends on the noise's covariance alone, which all distributions share: leave "
                "noise_distribution out, or use objective=sampled"
            )
        return self


@METHODS.register("sitar")
class SITAR(WeightedMethod):
    Config = SITARConfig
    vae_learns = "with labels"
    config: SITARConfig
    beta: Tensor

    def __init__(self, config: SITARConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, task)
        self.num_classes = task.num_classes
        self.num_train = task.num_train
        self.noise = NOISES[config.noise]
        self.vae = build_vae(model, task)
        self.vae_size = self.vae.num_inputs if config.vae_scale == "mean" else 1
        self.classifier = build_classifier(model, task)
        if config.vae == "factor":
            self.discriminator = Discriminator(model.axes)
        self.register_buffer("beta", torch.tensor(config.beta))  # a buffer, because the weights of earlier runs have it

    def phases(self) -> Iterator[Phase]:
        objectives = [Objective(self.loss, [*self.vae.parameters(), *self.classifier.parameters()])]
        if self.config.vae == "factor":
            settings = {"learning_rate": DISCRIMINATOR_RATE}
            objectives.append(Objective(self.discriminator_loss, list(self.discriminator.parameters()), settings))
        yield GradientPhase("train", tuple(objectives))

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Compute lines 5 to 13 of Algorithm 1."""
        features = self.vae.backbone(batch.x)
        mu, log_var = self.vae.posterior(features)
        z = reparameterise(mu, log_var)
        error = reconstruction(self.vae.decode(z), self.vae.target(features))
        divergence = self.divergence(z, mu, log_var)
        moments = self.moments(mu, batch.y)
        classification = self.classification(z, batch.y, moments)
        robust, change = classification["cross_entropy"], classification["consistency"]
        return {
            "loss": (error + divergence["divergence"]) / self.vae_size + robust + self.config.lambda_ * change,
            "reconstruction": error,
            **divergence,
            **classification,
            "shortcut_score": shortcut_score(moments.correlation),
        }

    def moments(self, mu: Tensor, y: Tensor) -> LabelMoments:
        """Compute lines 9 and 10 of Algorithm 1: how the axes vary with the label."""
        moments = label_moments(mu, y, self.num_classes, self.sample_weight(y))
        return without_chance(moments) if self.config.score_floor else moments

    def classification(self, z: Tensor, y: Tensor, moments: LabelMoments) -> dict[str, Tensor]:
        """Compute lines 11 and 12 of Algorithm 1."""
        if self.config.objective == "analytic":
            return self.expected_classification(z, y, moments)
        perturbed = z + self.config.alpha * self.noise.draw(z, moments, self.config.noise_distribution)
        logits, perturbed_logits = self.classifier(z), self.classifier(perturbed)
        robust = cross_entropy(perturbed_logits, y, self.class_weight)
        return {"cross_entropy": robust, "consistency": consistency(logits, perturbed_logits)}

    def expected_classification(self, z: Tensor, y: Tensor, moments: LabelMoments) -> dict[str, Tensor]:
        """Compute the expectation of these lines over the noise, to second order (Theorem 1).

        `curvature` is part of the cross-entropy.
        """
        with torch.autocast(z.device.type, enabled=False):  # second derivatives need float32 under mixed precision too
            expansion = expand(self.classifier, z.float(), y, self.noise.rows(moments))
        robust, change = expansion.at(self.config.alpha)
        weight = self.sample_weight(y)
        return {
            "cross_entropy": weighted_mean(robust, weight),
            "consistency": change.mean(),
            "curvature": self.config.alpha**2 * weighted_mean(expansion.curvature, weight),
        }

    def divergence(self, z: Tensor, mu: Tensor, log_var: Tensor) -> dict[str, Tensor]:
        """Compute the term that keeps the latent close to the prior and its axes apart: beta * KL in the paper."""
        match self.config.vae:
            case "beta":
                kl = gaussian_kl(mu, log_var)
                return {"divergence": self.beta * kl, "kl": kl}
            case "tc":
                information, correlation, rest = kl_parts(z, mu, log_var, self.num_train)
                parts = {"information": information, "total_correlation": correlation, "axis_kl": rest}
                return {"divergence": information + self.beta * correlation + rest, **parts}
            case "factor":
                kl, correlation = gaussian_kl(mu, log_var), density_ratio(self.discriminator(z))
                parts = {"kl": kl, "total_correlation": correlation}
                return {"divergence": kl + self.beta * correlation, **parts}

    def discriminator_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        z = reparameterise(*self.vae.encode(batch.x)).detach()
        loss = discrimination(self.discriminator(z), self.discriminator(permute_axes(z)))
        return {"loss": loss, "discriminator": loss}

    def logits(self, x: Tensor) -> Tensor:
        """Return f(mu). The latent is the posterior mean, without noise."""
        mu, _ = self.vae.encode(x)
        return self.classifier(mu)

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.vae, self.classifier)
