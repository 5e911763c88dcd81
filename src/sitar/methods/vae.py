"""A beta-VAE learns without labels, and an audit looks at its axes. A logistic regression on them classifies.

Departures: none from the paper's hypothesis validation but the sizes (docs/methods/vae.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sitar.config import ModelConfig, NamedConfig
from sitar.data.types import Task, TrainBatch, TrainSplit, in_batches
from sitar.functional.last_layer import fit_last_layer
from sitar.functional.losses import gaussian_kl, reconstruction, reparameterise
from sitar.methods.base import Bottleneck, FitPhase, GradientPhase, Method, Objective, Phase
from sitar.models.build import build_vae
from sitar.registry import METHODS


class BetaVAEConfig(NamedConfig):
    renamed = {"pull": "l2"}

    name: Literal["vae"] = "vae"
    beta: float = Field(default=2.0, ge=0, description="weight of the KL divergence")
    max_samples: int | None = Field(
        default=None, gt=1, description="training samples that it is shown, drawn at random; null: all"
    )
    l2: float = Field(default=1e-4, gt=0, description="weight of the logistic regression's squared weights")


@METHODS.register("vae")
class BetaVAE(Method):
    Config = BetaVAEConfig
    vae_learns = "without labels"
    shown: Tensor | None

    def __init__(self, config: BetaVAEConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        self.config = config
        self.vae = build_vae(model, task)
        self.head = nn.Linear(model.axes, task.num_classes)
        all_of_them = config.max_samples is None or config.max_samples >= task.num_train
        self.register_buffer("shown", None if all_of_them else torch.randperm(task.num_train)[: config.max_samples])

    def phases(self) -> Iterator[Phase]:
        learned = [p for name, p in self.vae.named_parameters() if not name.startswith("backbone.")]
        yield GradientPhase("vae", (Objective(self.loss, learned),), indices=self.shown, select=False)
        yield FitPhase("logistic regression", self.fit)

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Compute Eq. 1, without the label.

        A pretrained encoder is left as it is, because nothing would tell it what to keep.
        """
        features = self.vae.backbone(batch.x).detach()
        mu, log_var = self.vae.posterior(features)
        error = reconstruction(self.vae.decode(reparameterise(mu, log_var)), features)
        kl = gaussian_kl(mu, log_var)
        return {"loss": error + self.config.beta * kl, "reconstruction": error, "kl": kl}

    def fit(self, split: TrainSplit) -> None:
        """Fit the logistic regression. Every class that occurs counts the same."""
        x, y = split.x, split.y
        if self.shown is not None:
            x, y = x[self.shown.to(x.device)], y[self.shown.to(y.device)]
        mu = in_batches(lambda inputs: self.vae.encode(inputs)[0], x, y.device, self.evaluation_batch)
        weight = 1.0 / torch.bincount(y)[y].double()
        start = torch.zeros_like(self.head.weight), torch.zeros_like(self.head.bias)
        fitted = fit_last_layer(mu, y, weight / weight.sum(), *start, l2=self.config.l2)
        with torch.no_grad():
            self.head.weight.copy_(fitted[0])
            self.head.bias.copy_(fitted[1])

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.vae.encode(x)[0])

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.vae, self.head)

    def samples_shown(self) -> int | None:
        return None if self.shown is None else len(self.shown)
