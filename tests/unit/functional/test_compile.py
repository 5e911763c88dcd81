"""What compiles. Not marked `shapes`: the checker of shapes cannot be compiled."""

from __future__ import annotations

import torch

from helpers.referees import close, moments_of

from .test_noise import CLASSES, KINDS, drawn


@KINDS
@CLASSES
def test_noise_compiles_to_the_same_numbers(kind, correlation):
    torch._dynamo.reset()
    z = torch.randn(6, 3)
    compiled = torch.compile(kind.draw, fullgraph=True, backend="aot_eager")
    torch.manual_seed(3)
    noise = compiled(z, moments_of(correlation))
    close(noise, drawn(kind, z, correlation, seed=3).numpy())
    torch._dynamo.reset()
