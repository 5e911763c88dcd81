"""Write and read the weights of a module as the bytes of a safetensors file. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sitar.devices import forked_random_state
from sitar.errors import RunError

HEADER = 2**24  # bytes that the names and shapes in a file may take
TIMES, MORE = 64, 2**31  # bytes that building a module may take: so many for each byte of its file, and some more


def to_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """Return the content of a safetensors file."""
    return save({name: tensor.cpu().contiguous() for name, tensor in weights.items()})


def check_size(file: Path, build: Callable[[], nn.Module]) -> None:
    """Refuse a file that cannot have the weights of a module, by its size, before memory is taken for either.

    The module is built without memory: its tensors have a shape only. One in half precision may have half the bytes.
    """
    if not file.is_file():
        return  # whoever reads it says so
    size = file.stat().st_size
    try:
        with forked_random_state(), _Counted(TIMES * size + MORE), torch.device("meta"):
            needed = sum(tensor.nbytes for tensor in build().state_dict().values())
    except (RuntimeError, OverflowError, TypeError) as error:
        raise _unfit(file, f"no model of these settings can be built: {error}") from error
    if not needed // 2 <= size <= 2 * needed + HEADER:
        raise _unfit(file, f"the file has {size:,} bytes, and the model that the settings ask for {needed:,}")


def load_weights(content: bytes, into: nn.Module, file: Path) -> None:
    """Put the weights of a run into a module. An error names `file` if the weights do not fit exactly."""
    try:
        weights = load(content)
    except (SafetensorError, KeyError) as error:  # a type that torch does not have is a KeyError
        raise RunError(f"The weights {str(file)!r} cannot be read: {error}.") from error
    for name, tensor in into.state_dict().items():
        found = weights[name].dtype if name in weights else tensor.dtype
        if found != tensor.dtype and not (_is_float(found) and _is_float(tensor.dtype)):
            raise _unfit(file, f"{name} has numbers of the type {found}, not {tensor.dtype}")
    try:
        into.load_state_dict(weights)
    except RuntimeError as error:
        raise _unfit(file, str(error)) from error


def _is_float(kind: torch.dtype) -> bool:
    """Return whether numbers are floating-point numbers of two bytes or more, which are cast to each other."""
    return kind.is_floating_point and kind.itemsize > 1


def _unfit(file: Path, why: str) -> RunError:
    return RunError(f"The weights {str(file)!r} do not fit the run's config.yaml: {why}.")


class _Counted(TorchFunctionMode):
    """Counts the bytes that tensors without memory would take, and stops where they are too many.

    Such tensors have no values. Where code asks whether one is true, it is: no shape of our methods depends on this.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__bool__ and args[0].is_meta:
            return True
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_meta:
            self.left -= result.nbytes
            if self.left < 0:
                raise RuntimeError("it would take far more memory than its file has bytes")
        return result
