"""Put a small beta-VAE between the features of a network and its head, so that the noise finds axes to act on."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from sitar.errors import ConfigError
from sitar.functional.correlation import EPS, label_moments
from sitar.functional.losses import gaussian_kl, reconstruction, reparameterise
from sitar.models.feature_vae import FeatureDecoder, FeatureEncoder
from sitar.models.vae import VAE
from sitar.nn.checks import check_features
from sitar.nn.noise import TargetedNoise
from sitar.nn.running import RunningMoments


class Bottlenecked(NamedTuple):
    """A bottleneck returns these. In eval mode `noisy` is `latent`, the posterior mean."""

    latent: Tensor  # (batch, num_axes), for the head
    noisy: Tensor  # (batch, num_axes), for the head too
    loss: Tensor  # of the VAE, a number to add to the loss


class TargetedBottleneck(nn.Module):
    """Encode features with a beta-VAE, and perturb its axes that track the label: SITAR, in a loop of your own.

    The features of a network have no axes of their own: training mixes a shortcut over all of them, and noise on each
    of them then removes nothing in particular. A beta-VAE collects what varies together on one axis. Features of the
    shape (batch, num_features) become latents of the shape (batch, num_axes), which the head reads.

    - `num_axes`: latent axes; None is a quarter of the features, the paper's rule.
    - `beta`: weight of the KL divergence.
    - `vae_scale`: `mean` divides the loss of the VAE by the number of features, for a network that is trained too.
      `sum` is the paper's Algorithm 1, for frozen features (docs/encoders.md says why).
    - All other settings are those of `TargetedNoise`, which is the attribute `noise`. The prior holds the scale of the
      axes near 1, so its noise is the paper's, not `relative`.

    The features are brought to mean 0 and variance 1 by their running moments, and before the first training step all
    of them are 0. The reconstruction is compared with them, and no gradient of this comparison reaches them. Features
    may have any floating dtype; the latents have that of the weights, and the loss is float32 or wider.

    >>> import torch
    >>> bottleneck, head = TargetedBottleneck(num_features=32, num_classes=2, num_axes=8), nn.Linear(8, 2)
    >>> latent, noisy, vae_loss = bottleneck(torch.randn(16, 32), torch.arange(16) % 2)
    >>> latent.shape, noisy.shape, vae_loss.shape
    (torch.Size([16, 8]), torch.Size([16, 8]), torch.Size([]))
    >>> latent, _, _ = bottleneck.eval()(torch.randn(16, 32))
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        num_axes: int | None = None,
        kind: str = "axis",
        alpha: float = 1.0,
        *,
        beta: float = 2.0,
        vae_scale: Literal["mean", "sum"] = "mean",
        **settings: Any,
    ) -> None:
        super().__init__()
        if vae_scale not in ("mean", "sum"):
            raise ConfigError(f"vae_scale is {vae_scale!r}. Known: mean, sum.")
        if not 0 <= beta < float("inf"):
            raise ConfigError(f"beta is {beta}. It is a finite number of 0 or more.")
        self.num_axes = max(2, num_features // 4) if num_axes is None else num_axes
        self.noise = TargetedNoise(self.num_axes, num_classes, kind, alpha, **{"relative": False, **settings})
        self.beta = beta
        self.num_features = num_features
        self.scale = num_features if vae_scale == "mean" else 1
        self.features = RunningMoments(num_features, num_classes, momentum=0.1)
        encoder = FeatureEncoder(num_features)
        self.vae = VAE(encoder, FeatureDecoder(self.num_axes, encoder), self.num_axes, num_inputs=num_features)

    def forward(self, features: Tensor, labels: Tensor | None = None, *, weight: Tensor | None = None) -> Bottlenecked:
        """Return the latent, the latent with noise, and the loss of the VAE. Eval mode needs no labels."""
        check_features(features, self.num_features)
        if self.training:
            labels = self.noise.class_indices(labels, features, weight)
            self.features(label_moments(features, labels, self.noise.num_classes, weight))
        dtype = next(self.vae.parameters()).dtype
        features = self._standardised(features).to(torch.promote_types(dtype, torch.float32))
        mu, log_var = (part.to(features.dtype) for part in self.vae.posterior(features.to(dtype)))
        latent = (reparameterise(mu, log_var) if self.training else mu).to(dtype)
        error = reconstruction(self.vae.decode(latent), self.vae.target(features))
        loss = (error + self.beta * gaussian_kl(mu, log_var)) / self.scale
        return Bottlenecked(latent, self.noise(latent, labels, weight=weight, scored=mu), loss)

    def _standardised(self, features: Tensor) -> Tensor:
        """Return features of mean 0 and variance 1, in float32 or wider. One that has never varied becomes 0."""
        moments = self.features.moments
        varies = moments.variance > EPS
        return (features - moments.mean) * (varies / moments.spread)

    def extra_repr(self) -> str:
        return f"{self.num_features}, axes={self.num_axes}, beta={self.beta}, loss divided by {self.scale}"
