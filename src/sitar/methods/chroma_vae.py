"""Chroma-VAE (Yang et al., 2022) is a VAE whose first latents a classifier reads, so that the shortcut settles there.

The class is then predicted from the other latents, by k-NN as its authors do, or by a head on the same VAE.

Departures: this is a re-implementation. Sizes, k and the loss weight are ours (docs/methods/chroma_vae.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sitar.config import ModelConfig
from sitar.data.types import Task, TrainBatch, TrainSplit, in_batches
from sitar.errors import ConfigError
from sitar.functional.losses import cross_entropy, gaussian_kl, reconstruction, reparameterise
from sitar.functional.neighbours import class_votes
from sitar.memory import check_memory
from sitar.methods.base import Bottleneck, FitPhase, GradientPhase, Objective, Phase, WeightedConfig, WeightedMethod
from sitar.models import Classifier
from sitar.models.build import build_vae
from sitar.registry import METHODS

NO_EXPORT = (
    "It counts neighbours (k-NN): the file would hold a latent of every training sample, and rounding can change a "
    "vote. Train it with method.head=logistic or method.head=mlp, or use `sitar predict`."
)


class ChromaVAEConfig(WeightedConfig):
    name: Literal["chroma_vae"] = "chroma_vae"
    shortcut_dim: int = Field(default=2, gt=0, description="latents for the shortcut (z1); the rest are z2")
    beta: float = Field(default=1.0, ge=0, description="weight of the KL divergence")
    weight: float = Field(default=1.0, gt=0, description="weight of the cross-entropy on z1")
    head: Literal["knn", "logistic", "mlp"] = Field(default="knn", description="what predicts from z2")
    neighbours: int = Field(default=50, gt=0, description="k of k-NN")
    head_epochs: int | None = Field(default=None, gt=0, description="of the logistic and mlp heads; null: train.epochs")


BYTES = 12  # of a number that k-NN keeps: in the model, in a checkpoint, and while distances are computed


@METHODS.register("chroma_vae")
class ChromaVAE(WeightedMethod):
    Config = ChromaVAEConfig
    vae_learns = "with labels"
    core: Tensor
    label: Tensor

    def __init__(self, config: ChromaVAEConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, task)
        self.num_classes = task.num_classes
        core_dim = model.axes - config.shortcut_dim
        if core_dim < 1:
            raise ConfigError(
                f"method.shortcut_dim {config.shortcut_dim} leaves no latent to predict from: it must be below "
                f"model.latent_dim, which is {model.axes}."
            )
        if config.head == "knn" and config.neighbours > task.num_train:
            raise ConfigError(
                f"method.neighbours {config.neighbours} is more than the {task.num_train} training samples. Use fewer."
            )
        self.vae = build_vae(model, task)
        self.shortcut = Classifier(config.shortcut_dim, task.num_classes, model.hidden, model.activation)
        if config.head == "knn":
            check_memory(
                BYTES * task.num_train * core_dim,
                f"k-NN keeps the latents of all {task.num_train:,} training samples, {core_dim:,} numbers each",
                "Use a head that is trained: method.head=mlp.",
            )
            self.no_slope = "This method counts neighbours (k-NN), and a count has no slope."
            self.no_export = NO_EXPORT
            self.register_buffer("core", torch.zeros(task.num_train, core_dim))
            self.register_buffer("label", torch.zeros(task.num_train, dtype=torch.long))
        elif config.head == "logistic":
            self.head = nn.Linear(core_dim, task.num_classes)
        else:
            self.head = Classifier(core_dim, task.num_classes, model.hidden, model.activation)

    def phases(self) -> Iterator[Phase]:
        joint = [*self.vae.parameters(), *self.shortcut.parameters()]
        yield GradientPhase("joint", (Objective(self.loss, joint),), logits=self.shortcut_logits, select=False)
        if self.config.head == "knn":
            yield FitPhase("k-NN", self.remember)
        else:
            objective = Objective(self.head_loss, list(self.head.parameters()))
            yield GradientPhase("head", (objective,), epochs=self.config.head_epochs)

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        features = self.vae.backbone(batch.x)
        mu, log_var = self.vae.posterior(features)
        z = reparameterise(mu, log_var)
        error, kl = reconstruction(self.vae.decode(z), self.vae.target(features)), gaussian_kl(mu, log_var)
        fit = cross_entropy(self.shortcut(z[:, : self.config.shortcut_dim]), batch.y, self.class_weight)
        loss = error + self.config.beta * kl + self.config.weight * fit
        return {"loss": loss, "reconstruction": error, "kl": kl, "cross_entropy": fit}

    def head_loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.head(self.core_of(batch.x).detach()), batch.y, self.class_weight)}

    def remember(self, split: TrainSplit) -> None:
        self.core.copy_(in_batches(self.core_of, split.x, split.y.device, self.evaluation_batch))
        self.label.copy_(split.y)

    def core_of(self, x: Tensor) -> Tensor:
        """Return the posterior mean of z2."""
        return self.vae.encode(x)[0][:, self.config.shortcut_dim :]

    def shortcut_logits(self, x: Tensor) -> Tensor:
        return self.shortcut(self.vae.encode(x)[0][:, : self.config.shortcut_dim])

    def logits(self, x: Tensor) -> Tensor:
        return self.core_logits(self.core_of(x))

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.vae, lambda z: self.core_logits(z[:, self.config.shortcut_dim :]))

    def core_logits(self, core: Tensor) -> Tensor:
        if self.config.head != "knn":
            return self.head(core)
        neighbours = (self.core, self.label, self.num_classes, self.config.neighbours)
        votes = class_votes(core, *neighbours, self.class_weight) + 1
        return (votes / votes.sum(1, keepdim=True)).log()
