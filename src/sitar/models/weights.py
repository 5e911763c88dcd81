"""Write and read the weights of a module as the bytes of a safetensors file. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from sitar.errors import RunError


def to_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """Return the content of a safetensors file."""
    return save({name: tensor.cpu().contiguous() for name, tensor in weights.items()})


def load_weights(content: bytes, into: nn.Module, file: Path) -> None:
    """Put the weights of a run into a module. An error names `file` if the weights do not fit exactly."""
    try:
        into.load_state_dict(load(content))
    except SafetensorError as error:
        raise RunError(f"The weights {str(file)!r} cannot be read: {error}.") from error
    except RuntimeError as error:
        raise RunError(f"The weights {str(file)!r} do not fit the run's config.yaml: {error}") from error
