"""A head computes one parameter of the posterior from what the encoder makes of an input."""

from __future__ import annotations

from torch import nn


def posterior_head(features: int, latent_dim: int, hidden: int | None = None) -> nn.Module:
    """Build a linear head, or an MLP with one hidden layer of this width, as the paper's appendix has it."""
    if hidden is None:
        return nn.Linear(features, latent_dim)
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, latent_dim))


def width(head: nn.Module) -> int:
    """Return the number of latent axes that a head computes."""
    last = head[-1] if isinstance(head, nn.Sequential) else head
    assert isinstance(last, nn.Linear)
    return last.out_features
