"""SITAR trains a beta-VAE and a classifier together, and perturbs the latent axes that track the label (Algorithm 1).

`noise: axis` with Gaussian noise is the paper. alpha = lambda = 0 is the control. With `nuisances` the noise keeps to
what varies with them. With `gate` it is off where the rest of the latent does not tell the label (docs/nuisances.md).
Departures: docs/methods/sitar.md lists them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from sitar.config import ModelConfig, one_of
from sitar.data.rows import Stored, rows_at
from sitar.data.types import Nuisances, Task, TrainBatch, TrainSplit, UnlabelledBatch, in_batches, observed
from sitar.functional.correlation import (
    LabelMoments,
    along_nuisances,
    label_moments,
    shortcut_score,
    without_chance,
)
from sitar.functional.disentangle import density_ratio, discrimination, kl_parts, permute_axes
from sitar.functional.expansion import expand
from sitar.functional.gate import TAU, Reading, read_gate
from sitar.functional.losses import (
    consistency,
    cross_entropy,
    gaussian_kl,
    reconstruction,
    reparameterise,
    weighted_mean,
)
from sitar.functional.noise import NOISES, WITH_ROWS, Distribution
from sitar.functional.nuisance import column_rows, concept_rows, covariance_within, nuisance_projection
from sitar.functional.precision import in_float64
from sitar.functional.reduce import global_mean
from sitar.methods.base import Bottleneck, GradientPhase, Objective, Phase, WeightedConfig, WeightedMethod
from sitar.models import Discriminator
from sitar.models.build import build_classifier, build_vae
from sitar.registry import METHODS

logger = logging.getLogger(__name__)
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
    unlabelled: bool = Field(
        default=False, description="whether the VAE also learns from data.unlabelled; the classifier never does"
    )
    objective: Literal["sampled", "analytic"] = Field(
        default="sampled",
        description="sampled: one draw of noise a sample and step, the paper; analytic: its expectation by Theorem 1",
    )
    nuisances: Annotated[
        tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
    ] = Field(
        default=(),
        description="what to ignore: columns of the data, properties of the pixels such as brightness, mean_colour or "
        "blur, and folders of examples with/ and without/ a concept; empty: noise along all that tracks the label",
    )
    gate: bool = Field(
        default=False,
        description="whether noise is off in epochs in which the rest of the latent does not tell the label",
    )

    @model_validator(mode="after")
    def _targeted(self) -> SITARConfig:
        if not NOISES[self.noise].has_target and (self.nuisances or self.gate):
            name = "nuisances" if self.nuisances else "gate"
            others = ", ".join(kind.name for kind in NOISES.values() if kind.has_target)
            raise ValueError(f"{self.noise} noise has no target: leave {name} out, or use another noise ({others})")
        if len(set(self.nuisances)) < len(self.nuisances):
            raise ValueError(f"nuisances has a name twice: {', '.join(self.nuisances)}")
        return self

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
    projection: Tensor  # onto the nuisances, (latent, latent)
    within: Tensor  # covariance of the latent within classes
    variance: Tensor  # of the posterior, on each axis
    table: Tensor | None  # the nuisances of every training sample
    concepts: Tensor | None  # directions of concepts
    concept_doubt: Tensor | None
    gate: Tensor  # 1: open, 0: closed
    readings: Tensor  # what the whole latent, the suspects and the rest tell
    epochs_open: Tensor  # epochs in which the gate was open, and all epochs

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
        if config.nuisances:
            self.register_buffer("projection", torch.eye(model.axes))
            self.register_buffer("within", torch.eye(model.axes))
            self.register_buffer("variance", torch.ones(model.axes))
            for name in ("table", "concepts", "concept_doubt"):  # known once the training split is
                self.register_buffer(name, None, persistent=False)
        if config.gate:
            self.register_buffer("gate", torch.ones(()))
            self.register_buffer("readings", torch.zeros(3))
            self.register_buffer("epochs_open", torch.zeros(2))
            self.said_open = True  # what the log has last

    @classmethod
    def takes_unlabelled(cls, config: SITARConfig) -> bool:
        return config.unlabelled

    def phases(self) -> Iterator[Phase]:
        objectives = [Objective(self.loss, [*self.vae.parameters(), *self.classifier.parameters()])]
        if self.config.vae == "factor":
            settings = {"learning_rate": DISCRIMINATOR_RATE}
            objectives.append(Objective(self.discriminator_loss, list(self.discriminator.parameters()), settings))
        yield GradientPhase("train", tuple(objectives))

    @torch.no_grad()
    def observe(self, train: TrainSplit, nuisances: Nuisances | None) -> None:
        """Find the directions of the nuisances in the latent as it is now, and read the gate."""
        if nuisances is None and not self.config.gate:
            return
        mode = self.training
        self.eval()
        mu, variance, y, places = self._observed(train)
        if nuisances is not None:
            if self.table is None:
                self.table = nuisances.values.to(self.within)
            if len(nuisances.examples):
                examples, _ = self._latents(nuisances.examples, train.y.device)
                self._keep_concepts(concept_rows(examples, nuisances.contrasts.to(mu)))
            self.variance.copy_(variance)
            projection, within = self._project(mu.to(self.within), y.to(self.within.device), places)
            self.projection.copy_(projection)
            self.within.copy_(within)
        if self.config.gate:
            self._turn(self._read_gate(mu, variance, y))
        self.train(mode)

    @torch.no_grad()
    def reading(self, train: TrainSplit, along_nuisances: bool = True) -> Reading:
        """Ask of the latent as it is now whether it tells the label twice, as the gate does.

        Suspects lie along the nuisances, if there are any, or else along all that tracks the label.
        """
        mu, variance, y, _ = self._observed(train)
        return self._read_gate(mu, variance, y, along_nuisances)

    @torch.no_grad()
    def steadiness(self, train: TrainSplit, alpha: float, along_nuisances: bool = True) -> float:
        """Return the share of training samples whose predicted class stays where noise acts on the latent."""
        mu, _, y, _ = self._observed(train)
        mu = mu.float()
        moments = self.moments(mu, y) if along_nuisances else self.label_moments(mu, y)
        moved = mu + alpha * self.noise.draw(mu, moments, self.config.noise_distribution)
        return float((self.classifier(mu).argmax(1) == self.classifier(moved).argmax(1)).float().mean())

    def _observed(self, train: TrainSplit) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return posterior means, the mean variance of each axis, labels and places of the samples to look at."""
        places = observed(len(train)).to(train.y.device)
        mu, variance = self._latents(rows_at(train.x, places), train.y.device)
        return mu, variance, train.y[places].to(mu.device), places

    def _keep_concepts(self, found: tuple[Tensor, Tensor]) -> None:
        if self.concepts is None or self.concept_doubt is None:
            self.concepts, self.concept_doubt = found[0].to(self.within), found[1].to(self.within)
        self.concepts.copy_(found[0])  # a captured step reads the same memory
        self.concept_doubt.copy_(found[1])

    def _project(self, mu: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projection onto the nuisances of samples at these places, and the covariance within classes.

        It is taken anew in every step. An encoder moves a shortcut out of a direction that stands still.
        """
        assert self.table is not None
        mu = mu.detach().float()
        with torch.autocast(mu.device.type, enabled=False):
            within = covariance_within(mu, y, self.num_classes, self.variance)
            rows, doubt = column_rows(mu, self.table[index])
            if self.concepts is not None and self.concept_doubt is not None:
                rows, doubt = torch.cat([rows, self.concepts]), torch.block_diag(doubt, self.concept_doubt)
            return nuisance_projection(within, rows, doubt), within

    def begin_epoch(self, epoch: int) -> None:
        if self.config.gate:
            self.epochs_open += torch.stack([self.gate, torch.ones_like(self.gate)])
            if bool(self.gate) != self.said_open:
                self.said_open = bool(self.gate)
                words = "on" if self.said_open else "off"
                logger.warning("The noise is %s from here on. %s", words, self._gate_in_words())

    def _latents(self, x: Stored, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return posterior means of inputs, and the mean posterior variance of each axis."""
        size = min(self.evaluation_batch, 512)
        both = in_batches(lambda x: torch.cat(self.vae.encode(x), 1), x, device, size)
        mu, log_var = in_float64(both).chunk(2, 1)
        return mu, log_var.exp().mean(0)

    def _read_gate(self, mu: Tensor, variance: Tensor, y: Tensor, along_nuisances: bool = True) -> Reading:
        covariance = torch.cov(mu.T, correction=0) + torch.diag(variance)
        if not bool(covariance.isfinite().all()):  # the loss will not be, either
            return Reading(*torch.zeros(3, dtype=mu.dtype, device=mu.device))
        moments = self.moments(mu, y) if along_nuisances else self.label_moments(mu, y)
        rest = covariance if moments.within is None else moments.within.to(mu)
        suspects = self.noise.suspects(moments, rest.float()).to(mu)
        return read_gate(mu, y, self.num_classes, suspects, covariance)

    def _turn(self, reading: Reading) -> None:
        """Open or close the gate. The epoch that begins logs where this changes."""
        self.gate.fill_(float(reading.share >= TAU))
        self.readings.copy_(torch.stack([reading.whole, reading.suspects, reading.rest]))

    def _gate_in_words(self) -> str:
        return Reading(*self.readings).in_words()

    def facts(self) -> dict[str, Any]:
        if not self.config.gate:
            return {}
        epochs_open, epochs = map(int, self.epochs_open.tolist())
        if epochs and not epochs_open:
            words = "The gate never opened up to the epoch that is kept, so this model was trained as the control."
            logger.warning("%s %s", words, self._gate_in_words())
        found = dict(zip(("whole", "suspects", "rest"), self.readings.tolist(), strict=True))
        about = {"tau": TAU, "open": bool(self.gate), "epochs_open": epochs_open, "epochs": epochs}
        return {"gate": {**about, **found, "words": self._gate_in_words()}}

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Compute lines 5 to 13 of Algorithm 1."""
        features = self.vae.backbone(batch.x)
        mu, log_var = self.vae.posterior(features)
        z = reparameterise(mu, log_var)
        error = reconstruction(self.vae.decode(z), self.vae.target(features))
        divergence = self.divergence(z, mu, log_var)
        moments = self.moments(mu, batch.y, batch.index)
        classification = self.classification(z, batch.y, moments)
        robust, change = classification["cross_entropy"], classification["consistency"]
        vae = error + divergence["divergence"]
        if isinstance(batch, UnlabelledBatch):
            vae = (vae + self.vae_loss(batch.unlabelled)) / 2
        return {
            "loss": vae / self.vae_size + robust + self.config.lambda_ * change,
            "reconstruction": error,
            **divergence,
            **classification,
            "shortcut_score": shortcut_score(moments.correlation),
            **({"gate": self.gate} if self.config.gate else {}),
        }

    def vae_loss(self, x: Tensor) -> Tensor:
        """Compute lines 5 to 8 of Algorithm 1 for inputs without labels."""
        features = self.vae.backbone(x)
        mu, log_var = self.vae.posterior(features)
        z = reparameterise(mu, log_var)
        error = reconstruction(self.vae.decode(z), self.vae.target(features))
        return error + self.divergence(z, mu, log_var)["divergence"]

    def moments(self, mu: Tensor, y: Tensor, index: Tensor | None = None) -> LabelMoments:
        """Compute lines 9 and 10 of Algorithm 1: how the axes vary with the label, or with nuisances that tell it."""
        moments = self.label_moments(mu, y)
        if not self.config.nuisances:
            return moments
        if index is None or self.table is None:
            return along_nuisances(moments, self.projection, self.within)
        return along_nuisances(moments, *self._project(mu, y, index))

    def label_moments(self, mu: Tensor, y: Tensor) -> LabelMoments:
        moments = label_moments(mu, y, self.num_classes, self.sample_weight(y))
        return without_chance(moments) if self.config.score_floor else moments

    @property
    def alpha(self) -> float | Tensor:
        """Return the strength of the noise, which is 0 where the gate is closed."""
        return self.config.alpha * self.gate if self.config.gate else self.config.alpha

    def classification(self, z: Tensor, y: Tensor, moments: LabelMoments) -> dict[str, Tensor]:
        """Compute lines 11 and 12 of Algorithm 1."""
        if self.config.objective == "analytic":
            return self.expected_classification(z, y, moments)
        perturbed = z + self.alpha * self.noise.draw(z, moments, self.config.noise_distribution)
        logits, perturbed_logits = self.classifier(z), self.classifier(perturbed)
        robust = cross_entropy(perturbed_logits, y, self.class_weight)
        return {"cross_entropy": robust, "consistency": consistency(logits, perturbed_logits)}

    def expected_classification(self, z: Tensor, y: Tensor, moments: LabelMoments) -> dict[str, Tensor]:
        """Compute the expectation of these lines over the noise, to second order (Theorem 1).

        `curvature` is part of the cross-entropy.
        """
        with torch.autocast(z.device.type, enabled=False):  # second derivatives need float32 under mixed precision too
            expansion = expand(self.classifier, z.float(), y, self.noise.rows(moments))
        robust, change = expansion.at(self.alpha)
        weight = self.sample_weight(y)
        return {
            "cross_entropy": weighted_mean(robust, weight),
            "consistency": global_mean(change.mean()),
            "curvature": self.alpha**2 * weighted_mean(expansion.curvature, weight),
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
