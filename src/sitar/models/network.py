"""This is a plain classifier on the encoder that all methods share."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from sitar.models.classifier import Classifier
from sitar.models.heads import posterior_head


class Network(nn.Module):
    """A network has a backbone, an encoder, a head and the small classifier.

    The head is that of the posterior mean in other methods.
    """

    def __init__(
        self,
        encoder: nn.Module,
        latent_dim: int,
        classifier: Classifier,
        backbone: nn.Module | None = None,
        head_hidden: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone or nn.Identity()
        self.encoder = encoder
        self.mean = posterior_head(int(encoder.out_features), latent_dim, head_hidden)  # type: ignore[arg-type]
        self.classifier = classifier

    def features(self, x: Tensor) -> Float[Tensor, "batch hidden"]:
        """Return the input of the last layer."""
        return self.classifier.features(self.mean(self.encoder(self.backbone(x))))

    @property
    def last_layer(self) -> nn.Linear:
        return self.classifier.last_layer

    def forward(self, x: Tensor) -> Float[Tensor, "batch classes"]:
        return self.last_layer(self.features(x))
