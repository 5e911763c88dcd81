"""A Gaussian variational autoencoder around any encoder and decoder."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class VAE(nn.Module):
    """Linear heads for the posterior's mean and log-variance on top of an encoder that has `out_features`."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, latent_dim: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        features = int(encoder.out_features)  # type: ignore[arg-type]
        self.mean = nn.Linear(features, latent_dim)
        self.log_variance = nn.Linear(features, latent_dim)

    def encode(self, x: Tensor) -> tuple[Float[Tensor, "batch latent"], Float[Tensor, "batch latent"]]:
        """Mean and log-variance of the posterior."""
        features = self.encoder(x)
        return self.mean(features), self.log_variance(features)

    def decode(self, z: Float[Tensor, "batch latent"]) -> Tensor:
        return self.decoder(z)
