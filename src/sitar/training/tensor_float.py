"""Let matrix products and convolutions of a run use TF32, where `train.precision` asks for it.

TF32 has the range of float32 and rounds the factors of a product to ten bits. By itself torch uses it for convolutions
on a GPU and not for matrix products. `train.precision=float32` leaves both as the process has them.

torch has older names for this, which read and write one setting of all matrix products, and newer ones for each kind.
It refuses to read an older name once the newer ones say something else, and torch.compile reads one or the other, by
its version. So both are set here, in agreement. `copies/trial.py` sets the newer name of convolutions alone.
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
    """Use TF32 for a while, where a run asks for it, and put the process' own settings back afterwards.

    What uses it already is not touched: it may be torch's own choice, which then stays that.
    """
    with ExitStack() as stack:
        if precision == TF32:
            _allow(stack)
        yield


def _allow(stack: ExitStack) -> None:
    products, convolutions = kinds().values()
    if convolutions.fp32_precision != TF32:
        stack.callback(put_back, convolutions, convolutions.fp32_precision)
        convolutions.fp32_precision = TF32
    if products.fp32_precision == TF32:
        return
    host: Any = torch.backends.mkldnn  # the older name says it for a CPU too
    for kind in (products, host.matmul):
        stack.callback(put_back, kind, kind.fp32_precision)
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the names do not agree, by somebody else's hand
        products.fp32_precision = TF32
    else:
        stack.callback(torch.set_float32_matmul_precision, before)
        torch.set_float32_matmul_precision("high")


def put_back(kind: Any, before: str) -> None:
    """Have a kind follow torch's general setting as before, or, where that would be another one, its own."""
    kind.fp32_precision = INHERITED
    if kind.fp32_precision != before:
        kind.fp32_precision = before
