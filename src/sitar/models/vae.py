"""A Gaussian variational autoencoder is built around any encoder and decoder."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from sitar.models.heads import posterior_head


class VAE(nn.Module):
    """The VAE has a head each for the posterior's mean and log-variance, on top of an encoder that has `out_features`.

    The heads are linear, or MLPs whose hidden layer has `head_hidden` units.
    It encodes and reconstructs the `num_inputs` features that `backbone` makes of an input. By default these are the
    input itself.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        latent_dim: int,
        backbone: nn.Module | None = None,
        num_inputs: int = 1,
        head_hidden: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone or nn.Identity()
        self.num_inputs = num_inputs
        self.encoder = encoder
        self.decoder = decoder
        features = int(encoder.out_features)  # type: ignore[arg-type]
        self.mean = posterior_head(features, latent_dim, head_hidden)
        self.log_variance = posterior_head(features, latent_dim, head_hidden)

    def encode(self, x: Tensor) -> tuple[Float[Tensor, "batch latent"], Float[Tensor, "batch latent"]]:
        """Return the mean and log-variance of the posterior of an input."""
        return self.posterior(self.backbone(x))

    def posterior(self, features: Tensor) -> tuple[Float[Tensor, "batch latent"], Float[Tensor, "batch latent"]]:
        """Return the mean and log-variance of the posterior, from what the backbone has made of an input."""
        hidden = self.encoder(features)
        return self.mean(hidden), self.log_variance(hidden)

    def target(self, features: Tensor) -> Tensor:
        """Return what `decode` is compared with.

        It carries no gradient. Otherwise a backbone that is trained too would learn features that are easy to
        reconstruct.
        """
        return features.detach()

    def decode(self, z: Float[Tensor, "batch latent"]) -> Tensor:
        return self.decoder(z)
