"""This is the small classifier on the latent (f in the paper)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}


class Classifier(nn.Module):
    """The classifier has one hidden layer.

    Its activation is GELU, because with ReLU the curvature term of Theorem 1 vanishes almost everywhere.
    """

    def __init__(self, latent_dim: int, num_classes: int, hidden: int = 128, activation: str = "gelu") -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent_dim, hidden), ACTIVATIONS[activation](), nn.Linear(hidden, num_classes)
        )

    def features(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch hidden"]:
        """Return the input of the last layer."""
        return self.layers[:-1](z)

    @property
    def last_layer(self) -> nn.Linear:
        layer = self.layers[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch classes"]:
        return self.layers(z)
