"""Warn of settings that are allowed, and that we have seen to go wrong together (docs/encoders.md)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from sitar.config import RunConfig
from sitar.models.pretrained import RANDOM, expected_size

logger = logging.getLogger(__name__)


def warn(config: RunConfig, shape: Sequence[int]) -> None:
    """Warn of what is known of these settings on inputs of a shape. Training goes on."""
    for sentence in _advice(config, shape):
        logger.warning(sentence)


def _advice(config: RunConfig, shape: Sequence[int]) -> Iterator[str]:
    model = config.model
    if model.encoder is None:
        return
    size = expected_size(model.encoder)
    if model.encoder_weights != RANDOM and 2 * min(shape[1:]) <= size:
        yield (
            f"model.encoder {model.encoder} has learned from images of {size}x{size}, and these have "
            f"{shape[1]}x{shape[2]}: it sees little in them. Set data.image_size={size}."
        )
    if not model.freeze_encoder and getattr(config.method, "vae_scale", None) == "sum":
        yield (
            "method.vae_scale=sum lets the VAE replace what the encoder has learned: on BAR, training stays near "
            "chance. Set method.vae_scale=mean, or model.freeze_encoder=true."
        )
