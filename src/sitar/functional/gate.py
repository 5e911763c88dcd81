"""Ask whether a latent tells the label twice: by the suspects that noise acts on, and by the rest without them.

If only the suspects tell the label, noise on them takes all that there is to learn. If the suspects tell nothing, there
is nothing to perturb. The threshold was fixed on generated latents (reproduce/gate_rule.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

TAU = 0.75  # of the usable information, that the suspects alone and the rest alone must each hold
MOST_SAMPLES = 1024  # that the probe is fitted on
RIDGES = (0.1, 1.0, 10.0)  # of which the probe takes the best


@dataclass(frozen=True)
class Reading:
    """Holds the usable information about the label: in the latent, in the suspects alone, and in the rest alone."""

    whole: Float[Tensor, ""]
    suspects: Float[Tensor, ""]
    rest: Float[Tensor, ""]

    @property
    def share(self) -> Float[Tensor, ""]:
        """Return the smaller one of both shares. It is 0 where the latent tells nothing."""
        smaller = torch.minimum(self.suspects, self.rest)
        return torch.where(self.whole > 0, smaller / self.whole.clamp_min(1e-8), 0.0).clamp(0, 1)

    @property
    def suspected(self) -> Float[Tensor, ""]:
        """Return the share that the suspects alone hold. It is 0 where the latent tells nothing."""
        return torch.where(self.whole > 0, self.suspects / self.whole.clamp_min(1e-8), 0.0).clamp(0, 1)

    def in_words(self) -> str:
        """Say what was read, in sentences."""
        whole, suspects, rest = self.whole.item(), self.suspects.item(), self.rest.item()
        if whole <= 0:
            return "The latent tells nothing about the label."
        return (
            f"Of what the latent tells about the label, the suspects alone hold {suspects / whole:.2f} and the rest "
            f"alone {rest / whole:.2f}. Each must hold {TAU:g}."
        )


def read_gate(
    mu: Float[Tensor, "sample latent"],
    y: Int[Tensor, " sample"],
    num_classes: int,
    suspects: Float[Tensor, "latent latent"],
    covariance: Float[Tensor, "latent latent"],
) -> Reading:
    """Measure what a latent, its suspects and its rest tell about the label.

    `suspects` is a projection: mu @ suspects is the part that noise acts on. Distances are measured in the metric of
    `covariance`, so that they do not depend on how the latent is rotated or stretched. A latent that is not finite
    tells nothing.
    """
    if not all(bool(part.isfinite().all()) for part in (mu, suspects, covariance)):  # the loss will not be, either
        return Reading(*torch.zeros(3, dtype=mu.dtype, device=mu.device))
    mu = mu[:MOST_SAMPLES] - mu[:MOST_SAMPLES].mean(0)
    y = y[:MOST_SAMPLES]
    values, vectors = torch.linalg.eigh(covariance)
    whitened = vectors / values.clamp_min(1e-12).sqrt()
    part = mu @ suspects
    whole, alone, rest = (usable_information(x @ whitened, y, num_classes) for x in (mu, part, mu - part))
    return Reading(whole, alone, rest)


def usable_information(
    x: Float[Tensor, "sample column"], y: Int[Tensor, " sample"], num_classes: int
) -> Float[Tensor, ""]:
    """Return the share of the label's variance that a probe explains on samples that it was not fitted to.

    The probe is a kernel ridge regression on the classes. Each sample is predicted by the fit to all others, which has
    a closed form. A probe that predicts worse than the shares of the classes tells nothing: 0.
    """
    target = one_hot(y, num_classes).to(x.dtype)
    target = target - target.mean(0)
    distance = torch.cdist(x, x).square()
    kernel = torch.exp(-distance / distance.median().clamp_min(1e-12))
    eye = torch.eye(len(x), dtype=x.dtype, device=x.device)
    shares = []
    for ridge in RIDGES:
        inverse = torch.linalg.inv(kernel + ridge * eye)
        error = inverse @ target / inverse.diagonal().unsqueeze(1)
        shares.append(1 - error.square().sum() / target.square().sum().clamp_min(1e-12))
    return torch.stack(shares).amax().clamp_min(0)


def along(
    rows: Float[Tensor, "row latent"], covariance: Float[Tensor, "latent latent"]
) -> Float[Tensor, "latent latent"]:
    """Return the projection onto the span of rows, orthogonal in the metric of the inverse covariance."""
    readers = torch.linalg.solve(covariance, rows.T)
    return readers @ torch.linalg.pinv(rows @ readers, rtol=1e-5, hermitian=True) @ rows
