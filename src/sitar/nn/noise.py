"""Stand between the features of a network and its head, and perturb the features that track the label (Eq. 2 and 3)."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from sitar.errors import ConfigError
from sitar.functional.correlation import LabelMoments, label_moments, shortcut_score, without_chance
from sitar.functional.noise import NOISES, Distribution
from sitar.nn.checks import check_classes, check_features, class_indices
from sitar.nn.running import RunningMoments


class TargetedNoise(nn.Module):
    """Add noise to features, along those that track the label. In eval mode it returns the features as they are.

    The features have the shape (batch, num_features) and any floating dtype. The labels are class indices of the shape
    (batch,). The noise has no gradient; the gradient of the result flows into the features unchanged. There are no
    parameters. With several processes (torch.distributed) the moments are those of the global batch, so every process
    must call the module equally often while it trains.

    - `kind`: which noise (`sitar.functional.NOISES`; docs/methods/sitar.md compares them).
    - `alpha`: strength of the noise. It is a plain attribute and may change while training runs; 0 gives the features.
    - `distribution`: gaussian, rademacher or uniform, for the kinds that draw numbers.
    - `relative`: whether noise of standard deviation alpha * v is measured in standard deviations of each feature.
      Features of unknown scale need it: a network could drown any other noise by making its features larger. False is
      the paper's equation, for latents whose scale a prior holds near 1. Kinds that follow the scale of the features
      anyway are the same in both cases.
    - `score_floor`: whether v^2 loses what chance gives it in n samples, 1/n. It matters in small batches.
    - `momentum`: None scores each batch alone, as the paper does. Otherwise moments are gathered over batches, and
      this is the share of the newest one, as in batch normalisation.

    `scores` is a buffer with the score v of every feature at the last training step, for logging. NaN or infinite
    features are passed on and make the noise of their batch NaN; the running moments leave such a batch out.

    >>> noise = TargetedNoise(num_features=3, num_classes=2, alpha=0.5)
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> features = torch.tensor([[0.0, 5.0, 1.0], [0.0, 7.0, 2.0], [1.0, 7.0, 1.0], [1.0, 5.0, 1.0]])
    >>> noisy = noise(features, labels)
    >>> noise.scores
    tensor([1.0000, 0.0000, 0.5774])
    >>> (noisy - features).abs().amax(0) > 0
    tensor([ True, False,  True])
    >>> torch.equal(noise.eval()(features), features)
    True
    """

    scores: Tensor

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        kind: str = "axis",
        alpha: float = 1.0,
        *,
        distribution: Distribution = "gaussian",
        relative: bool = True,
        score_floor: bool = False,
        momentum: float | None = None,
    ) -> None:
        super().__init__()
        _check_settings(num_features, num_classes, kind, alpha, distribution)
        self.num_features = num_features
        self.num_classes = num_classes
        self.kind = NOISES[kind]
        self.alpha = alpha
        self.distribution: Distribution = distribution
        self.relative = relative
        self.score_floor = score_floor
        self.running = None if momentum is None else RunningMoments(num_features, num_classes, momentum)
        self.register_buffer("scores", torch.empty(num_features))
        self._seen = False
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget scores and moments. Loaders call this, as for layers of torch, where a checkpoint holds none."""
        nn.init.zeros_(self.scores)
        if self.running is not None:
            self.running.reset_parameters()

    def forward(
        self,
        features: Tensor,
        labels: Tensor | None = None,
        *,
        weight: Tensor | None = None,
        scored: Tensor | None = None,
    ) -> Tensor:
        """Return the features with noise, in their shape and dtype.

        `weight` weighs the samples in the moments. `scored` is scored in the place of the features: the posterior means
        of a VAE, whose latents get the noise.
        """
        if not self.training:
            return features
        check_features(features, self.num_features)
        labels = self.class_indices(labels, features, weight)
        with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
            moments = self._moments(features if scored is None else scored, labels, weight)
            self.scores.copy_(shortcut_score(moments.correlation))
            noise = self.kind.draw(features, moments, self.distribution)
            if self.relative and not self.kind.follows_scale:
                noise = noise * moments.spread.to(noise.dtype)
        return features + self.alpha * noise

    def _moments(self, features: Tensor, labels: Tensor, weight: Tensor | None) -> LabelMoments:
        moments = label_moments(features, labels, self.num_classes, weight)
        if self.running is not None:
            moments = self.running(moments)
        return without_chance(moments) if self.score_floor else moments

    def class_indices(self, labels: Tensor | None, features: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the labels as int64, checked. On an accelerator only the values of the first batch are looked at."""
        labels = class_indices(labels, features, weight)
        if not torch.compiler.is_compiling() and (labels.device.type == "cpu" or not self._seen):
            check_classes(labels, self.num_classes)
            self._seen = True
        return labels

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, classes={self.num_classes}, kind={self.kind.name}, alpha={self.alpha}, "
            f"distribution={self.distribution}, relative={self.relative}, score_floor={self.score_floor}"
        )


def _check_settings(num_features: int, num_classes: int, kind: str, alpha: float, distribution: str) -> None:
    if num_features < 1 or num_classes < 2:
        raise ConfigError(f"{num_features} features and {num_classes} classes: at least 1 and 2 are needed.")
    if kind not in NOISES:
        raise ConfigError(f"There is no noise {kind!r}. Known: {', '.join(NOISES)}.")
    if not 0 <= alpha < float("inf"):
        raise ConfigError(f"alpha is {alpha}. It is a finite number of 0 or more.")
    if distribution not in get_args(Distribution):
        raise ConfigError(f"There is no distribution {distribution!r}. Known: {', '.join(get_args(Distribution))}.")
    if distribution != "gaussian" and not NOISES[kind].has_distribution:
        raise ConfigError(f"{kind} draws no numbers: leave distribution out, or use another kind.")
