"""A diffusion classifier predicts the class under which a class-conditional diffusion model predicts the noise best.

It models images, or features: a user's own, or those of a frozen encoder.

Departures: one conditional model instead of one per class; a U-Net or, on features, an MLP instead of the shared
networks; no averaged weights; probabilities that are not calibrated (docs/methods/diffusion.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from sitar.config import ModelConfig, NamedConfig
from sitar.data.types import Task, TrainBatch
from sitar.errors import ConfigError
from sitar.functional.denoising import antithetic_noise, class_errors, even_timesteps, noised, random_timesteps
from sitar.functional.draws import normal_like
from sitar.functional.reduce import global_mean
from sitar.methods.base import GradientPhase, Method, Objective, Phase
from sitar.models import Standardise
from sitar.models.feature_denoiser import FeatureDenoiser
from sitar.models.unet import ConditionalUNet, cosine_alphas_cumprod
from sitar.registry import METHODS

SCORING_PIXELS = 2**20  # or features, in one call while scoring, over samples and classes: bounds the memory
SCORING_PIXELS_CPU = 2**15  # smaller calls of the U-Net are faster on a CPU: their data stays in its cache


class DiffusionConfig(NamedConfig):
    name: Literal["diffusion"] = "diffusion"
    unet_channels: tuple[int, ...] = Field(
        default=(32, 64, 64), min_length=1, description="widths of the U-Net; each after the first halves the image"
    )
    layers_per_block: int = Field(default=2, gt=0, description="residual layers at each width of the U-Net")
    mlp_width: int = Field(default=256, gt=0, description="hidden units of the MLP that replaces the U-Net on features")
    mlp_layers: int = Field(default=3, gt=0, description="residual layers of this MLP")
    diffusion_steps: int = Field(default=1000, gt=0, le=10**6, description="steps of the forward process")
    scoring_pairs: int = Field(default=32, gt=0, description="pairs (t, noise) over which a class's error is averaged")
    prior: Literal["uniform", "empirical"] = Field(
        default="uniform", description="p(y) at test time; empirical: the training split's frequencies"
    )

    @model_validator(mode="after")
    def _consistent(self) -> DiffusionConfig:
        if min(self.unet_channels) < 2:
            raise ValueError("every width in unet_channels must be at least 2")
        if self.scoring_pairs > self.diffusion_steps:
            raise ValueError(f"scoring_pairs can be at most the {self.diffusion_steps} diffusion_steps")
        return self


@METHODS.register("diffusion")
class Diffusion(Method):
    Config = DiffusionConfig
    evaluation_batch = 512  # scoring is slow, and progress is shown once a batch
    no_slope = "A diffusion classifier compares errors of denoising, which are not differentiated here."
    no_export = (
        "A diffusion classifier runs its denoiser many times for each class, in parts that depend on the batch, and "
        "sums large errors whose rounding moves the probabilities. Use `sitar predict`, or train another method."
    )
    alphas_cumprod: Tensor
    scoring_t: Tensor
    scoring_noise: Tensor
    log_prior: Tensor

    def __init__(self, config: DiffusionConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        if model.encoder is not None and task.features is None:
            raise ConfigError(
                "The diffusion classifier models its inputs, and an encoder that is trained with it would make them "
                "easy to model, and empty. Use model.freeze_encoder=true, or images without model.encoder."
            )
        self.config = config
        self.num_classes = task.num_classes
        alphas_cumprod = cosine_alphas_cumprod(config.diffusion_steps)
        self.backbone: nn.Module
        self.denoiser: nn.Module
        if task.features is None:
            self.backbone = Centred()
            self.denoiser = ConditionalUNet(task.shape, task.num_classes, config.unet_channels, config.layers_per_block)
        else:
            self.backbone = Standardise(*task.features)
            sizes = config.mlp_width, config.mlp_layers
            self.denoiser = FeatureDenoiser(task.shape[0], task.num_classes, alphas_cumprod, *sizes)
        self.register_buffer("alphas_cumprod", alphas_cumprod)
        self.register_buffer("scoring_t", even_timesteps(config.diffusion_steps, config.scoring_pairs))
        self.register_buffer("scoring_noise", antithetic_noise(config.scoring_pairs, task.shape))
        self.register_buffer("log_prior", log_prior(config.prior, task))

    def phases(self) -> Iterator[Phase]:
        yield GradientPhase("train", (Objective(self.loss, list(self.parameters())),))

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the error of the predicted noise at a random step, as the mean over batch and pixels."""
        x = self.backbone(batch.x)
        t, noise = random_timesteps(x, self.config.diffusion_steps), normal_like(x)
        predicted = self.denoiser(noised(x, noise, self.alphas_cumprod[t]), t, batch.y)
        return {"loss": global_mean((predicted.float() - noise).square().mean())}

    def logits(self, x: Tensor) -> Tensor:
        """Return log p(y) minus each class's error. The error is no likelihood, so the softmax is not calibrated."""
        small = x.device.type == "cpu" and x.ndim == 4
        size = math.prod(x.shape[2:] or x.shape[1:])  # pixels of an image, or features
        samples = max(1, (SCORING_PIXELS_CPU if small else SCORING_PIXELS) // (self.num_classes * size))
        pairs = (self.scoring_t, self.scoring_noise, self.alphas_cumprod)
        chunks = self.backbone(x).split(samples)
        return torch.cat([self.log_prior - class_errors(self.denoiser, c, self.num_classes, *pairs) for c in chunks])


class Centred(nn.Module):
    """Images are mapped from [0, 1] to [-1, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x - 1


def log_prior(prior: str, task: Task) -> Tensor:
    """Return log p(y) of every class. A class without training samples counts as one, so that logits stay finite."""
    if prior == "uniform":
        return torch.full((task.num_classes,), -math.log(task.num_classes))
    return (torch.tensor(task.class_counts, dtype=torch.float32).clamp_min(1) / task.num_train).log()
