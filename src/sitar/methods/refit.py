"""A refitted method is a trained method with a new last layer, which `sitar refit` fits to training data and answers.

It is not registered: no training makes it, and it takes its settings and its view of the data from the method in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from sitar.config import RefitFeatures
from sitar.errors import RunError
from sitar.methods.base import Bottleneck, Method, Phase
from sitar.models import Classifier
from sitar.models.heads import width


class RefitInputs:
    """A new last layer may read the latent of a trained method, its hidden units, or what its encoder returns.

    `widths` has the number of each, the simplest first. Not every method has hidden units.
    """

    def __init__(self, method: Method) -> None:
        bottleneck = method.bottleneck()
        if bottleneck is None:
            raise RunError("This method predicts from no latent, so it has no last layer to fit again.")
        self.network = bottleneck.network
        self.classifier = bottleneck.classify if isinstance(bottleneck.classify, Classifier) else None
        self.widths: dict[RefitFeatures, int] = {"latent": width(self.network.mean)}
        if self.classifier is not None:
            self.widths["hidden"] = self.classifier.last_layer.in_features
        self.widths["encoder"] = cast(int, self.network.encoder.out_features)

    def all(self, x: Tensor) -> Tensor:
        """Return all of them side by side, of inputs as a batch carries them, in the order of `widths`."""
        encoded = self.encoded(x)
        z = self.network.mean(encoded)
        return torch.cat([z, *([] if self.classifier is None else [self.classifier.features(z)]), encoded], 1)

    def encoded(self, x: Tensor) -> Tensor:
        return self.network.encoder(self.network.backbone(x))


class Refitted(Method):
    """This method predicts by a new linear layer on one kind of features of the method in it."""

    def __init__(self, base: Method, features: RefitFeatures, num_classes: int) -> None:
        super().__init__()
        self.base = base
        self.needs_groups, self.vae_learns = base.needs_groups, base.vae_learns
        self.needs_unlabelled = base.needs_unlabelled
        self.evaluation_batch = base.evaluation_batch
        self.inputs = RefitInputs(base)
        self.features = features
        self.head = nn.Linear(self.inputs.widths[features], num_classes)

    def phases(self) -> Iterator[Phase]:
        """Yield nothing, because it is made of a method that was trained."""
        return iter(())

    def logits(self, x: Tensor) -> Tensor:
        encoded = self.inputs.encoded(x)
        if self.features == "encoder":
            return self.head(encoded)
        return self._of_latent(self.inputs.network.mean(encoded))

    def bottleneck(self) -> Bottleneck | None:
        return None if self.features == "encoder" else Bottleneck(self.inputs.network, self._of_latent)

    def _of_latent(self, z: Tensor) -> Tensor:
        if self.features == "hidden":
            assert self.inputs.classifier is not None
            z = self.inputs.classifier.features(z)
        return self.head(z)

    def samples_shown(self) -> int | None:
        return self.base.samples_shown()
