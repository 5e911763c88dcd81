"""Warn of settings that are allowed, and that we have seen to go wrong together (docs/encoders.md, docs/scale.md)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from sitar.config import RunConfig
from sitar.memory import free_memory
from sitar.models.pretrained import RANDOM, expected_size

logger = logging.getLogger(__name__)


def warn(config: RunConfig, shape: Sequence[int], size: int = 0) -> None:
    """Warn of what is known of these settings on inputs of a shape, `size` bytes of them. Training goes on."""
    for sentence in (*_advice(config, shape), *_size_advice(config, size)):
        logger.warning(sentence)


def _size_advice(config: RunConfig, size: int) -> Iterator[str]:
    free = free_memory()
    if free is not None and size > free and config.train.shuffle == "samples":
        yield (
            f"The training data has {size / 1e9:,.1f} GB and {free / 1e9:,.1f} GB of memory are free, so samples in "
            "random order are read from the disk one by one. train.shuffle=blocks reads neighbours together "
            "(docs/scale.md)."
        )


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
