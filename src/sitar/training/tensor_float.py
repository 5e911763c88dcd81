"""Let matrix products and convolutions of a run use TF32, where `train.precision` asks for it.

TF32 has the range of float32 and rounds the factors of a product to ten bits. By itself torch uses it for convolutions
on a GPU and not for matrix products. `train.precision=float32` leaves both as the process has them.

torch has an older and a newer set of names for this, and an error follows where both are used. Only the newer one is
used here and in `copies/trial.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from sitar.errors import ConfigError

TF32, INHERITED = "tf32", "none"
FIRST_CAPABILITY = (8, 0)  # of a GPU of NVIDIA that has it


def kinds() -> dict[str, Any]:
    """Return what torch keeps a precision of: matrix products and convolutions on a GPU."""
    backends: Any = torch.backends  # the names are unknown to type checkers
    return {"matrix_products": backends.cuda.matmul, "convolutions": backends.cudnn.conv}


def used() -> dict[str, bool]:
    """Say for which operations on a GPU this process uses TF32 now."""
    return {name: kind.fp32_precision == TF32 for name, kind in kinds().items()}


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that a device does not have."""
    if precision != TF32:
        return
    if device.type != "cuda":
        raise ConfigError("train.precision 'tf32' needs a CUDA device. Use 'float32' here, or 'bfloat16'.")
    if torch.cuda.get_device_capability(device) < FIRST_CAPABILITY:
        raise ConfigError(
            f"train.precision 'tf32' needs a newer GPU than {torch.cuda.get_device_name(device)}. Use 'float32'."
        )


@contextmanager
def allowed(precision: str) -> Iterator[None]:
    """Use TF32 for a while, where a run asks for it, and put the process' own settings back afterwards."""
    with ExitStack() as stack:
        for kind in kinds().values() if precision == TF32 else ():
            if kind.fp32_precision != TF32:  # what torch uses by itself must stay its own choice
                stack.callback(_put_back, kind, kind.fp32_precision)
                kind.fp32_precision = TF32
        yield


def _put_back(kind: Any, before: str) -> None:
    """Have a kind follow torch's general setting as before, or, where that would be another one, its own."""
    kind.fp32_precision = INHERITED
    if kind.fp32_precision != before:
        kind.fp32_precision = before
