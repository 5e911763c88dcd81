"""A subject is the model that is explained, with what several parts need of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from sitar.analysis.explain.reference_vae import MOST, ReferenceVAEs
from sitar.analysis.latents import posterior_means, shortcut_scores
from sitar.analysis.samples import held_out
from sitar.data.base import Box
from sitar.evaluation.trained_model import TrainedModel


@dataclass(frozen=True)
class Subject:
    """A subject holds a trained model and the options. Samples and latents are computed once, when first needed."""

    model: TrainedModel
    references: ReferenceVAEs = field(default_factory=ReferenceVAEs)
    box: Box | None = None  # where the mass of Grad-CAM maps is counted; None: the dataset's own

    @cached_property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of the samples at which latents are examined."""
        return held_out(self.model, MOST, least=2)

    @cached_property
    def mu(self) -> Tensor:
        """Return the posterior means of the held-out samples."""
        return posterior_means(self.model, self.held_out[0])

    @cached_property
    def v(self) -> Tensor:
        """Return the shortcut score of every axis, on the held-out samples."""
        return shortcut_scores(self.mu, self.held_out[1], len(self.model.classes))
