"""A beta-VAE learns without labels, and an audit looks at its axes. A logistic regression on them classifies.

Departures: none from the paper's hypothesis validation but the sizes (docs/methods/vae.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sitar.config import ModelConfig, NamedConfig
from sitar.data.rows import select
from sitar.data.types import Task, TrainBatch, TrainSplit, in_batches
from sitar.functional.last_layer import fit_last_layer
from sitar.functional.losses import gaussian_kl, reconstruction, reparameterise
from sitar.functional.precision import in_float64
from sitar.memory import check_memory
from sitar.methods.base import Bottleneck, FitPhase, GradientPhase, Method, Objective, Phase
from sitar.models.build import build_vae
from sitar.registry import METHODS

USED = 0.01  # variance of an axis's posterior means from which the VAE uses it (Burda et al., 2016)
BYTES = 12  # of a latent while the logistic regression is fitted: in float32 and in float64
MOST_COUNTED = 2000  # samples whose latents say which axes are used


class BetaVAEConfig(NamedConfig):
    name: Literal["vae"] = "vae"
    beta: float = Field(default=2.0, ge=0, description="weight of the KL divergence")
    max_samples: int | None = Field(
        default=None, gt=1, description="training samples that it is shown, drawn at random; null: all"
    )
    restarts: int = Field(
        default=0,
        ge=0,
        le=10,
        description="how often training starts anew where the VAE uses no axis; the last time with half of beta",
    )
    l2: float = Field(default=1e-4, gt=0, description="weight of the logistic regression's squared weights")


@METHODS.register("vae")
class BetaVAE(Method):
    Config = BetaVAEConfig
    vae_learns = "without labels"
    shown: Tensor | None
    used: Tensor | None
    beta: Tensor | None

    def __init__(self, config: BetaVAEConfig, model: ModelConfig, task: Task) -> None:
        super().__init__()
        self.config, self.num_train = config, task.num_train
        self.build = lambda: build_vae(model, task)
        self.vae = self.build()
        self.head = nn.Linear(model.axes, task.num_classes)
        all_of_them = config.max_samples is None or config.max_samples >= task.num_train
        self.register_buffer("shown", None if all_of_them else torch.randperm(task.num_train)[: config.max_samples])
        starts = torch.full((config.restarts + 1,), -1) if config.restarts else None
        self.register_buffer("used", starts)  # axes after each start; -1: there was none yet
        self.register_buffer("beta", torch.tensor(config.beta) if config.restarts else None)

    def phases(self) -> Iterator[Phase]:
        samples, axes = self.num_train if self.shown is None else len(self.shown), self.head.in_features
        check_memory(
            samples * axes * BYTES,
            f"The logistic regression is fitted to {samples:,} samples with {axes:,} axes each at once",
            "Show the method fewer samples: method.max_samples=100000.",
        )
        learned = [p for name, p in self.vae.named_parameters() if not name.startswith("backbone.")]
        for start in range(self.config.restarts + 1):
            name = f"vae, start {start + 1}" if start else "vae"
            yield GradientPhase(name, (Objective(self.loss, learned),), indices=self.shown, select=False)
            if self.used is None:
                break
            yield FitPhase("used axes", partial(self.start_anew, start))
            if self.used[start] > 0:
                break
        yield FitPhase("logistic regression", self.fit)

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Compute Eq. 1, without the label.

        A pretrained encoder is left as it is, because nothing would tell it what to keep.
        """
        features = self.vae.backbone(batch.x).detach()
        mu, log_var = self.vae.posterior(features)
        error = reconstruction(self.vae.decode(reparameterise(mu, log_var)), features)
        kl = gaussian_kl(mu, log_var)
        beta = self.config.beta if self.beta is None else self.beta
        return {"loss": error + beta * kl, "reconstruction": error, "kl": kl}

    def start_anew(self, start: int, split: TrainSplit) -> None:
        """Count the axes that are used. Where there is none, draw new weights for the next start.

        The last start has half of beta.
        """
        assert self.used is not None
        assert self.beta is not None
        index = torch.arange(len(split)) if self.shown is None else self.shown
        x = select(split.x, index[:: max(1, len(index) // MOST_COUNTED)])  # from first to last: may be sorted
        mu = in_batches(lambda inputs: self.vae.encode(inputs)[0], x, split.y.device, self.evaluation_batch)
        self.used[start] = (mu.var(0) >= USED).sum()
        if self.used[start] == 0 and start < self.config.restarts:
            fresh = self.build().state_dict()
            with torch.no_grad():
                for name, weight in self.vae.state_dict().items():
                    if not name.startswith("backbone."):
                        weight.copy_(fresh[name])
            if start + 1 == self.config.restarts:
                self.beta.fill_(self.config.beta / 2)

    def fit(self, split: TrainSplit) -> None:
        """Fit the logistic regression. Every class that occurs counts the same."""
        x, y = split.x, split.y
        if self.shown is not None:
            x, y = select(x, self.shown), y[self.shown.to(y.device)]
        mu = in_batches(lambda inputs: self.vae.encode(inputs)[0], x, y.device, self.evaluation_batch)
        weight = 1.0 / in_float64(torch.bincount(y)[y])
        start = torch.zeros_like(self.head.weight), torch.zeros_like(self.head.bias)
        fitted = fit_last_layer(mu, y, weight / weight.sum(), *start, l2=self.config.l2)
        with torch.no_grad():
            self.head.weight.copy_(fitted[0])
            self.head.bias.copy_(fitted[1])

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.vae.encode(x)[0])

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(self.vae, self.head)

    def starts(self) -> str | None:
        """Say how often training started anew, and with what; None: it did not."""
        if self.used is None or self.beta is None or self.used[0] > 0:
            return None
        empty = int((self.used == 0).sum())
        words = f"The VAE used no axis after {empty} of {int((self.used >= 0).sum())} starts"
        return f"{words}; the last had a beta of {float(self.beta):g}."

    def samples_shown(self) -> int | None:
        return None if self.shown is None else len(self.shown)
