"""Compute in float64, also if the tensors lie on a device that does not have it."""

from __future__ import annotations

from torch import Tensor


def in_float64(x: Tensor) -> Tensor:
    """Return a tensor in float64. Apple's GPU has no such type, so the result is on the CPU there."""
    return x.cpu().double() if x.device.type == "mps" else x.double()
