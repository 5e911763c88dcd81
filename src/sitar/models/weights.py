"""Weights of a module as a safetensors file. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from sitar.errors import RunError
from sitar.run_folder import write_atomic


def save_weights(file: Path, weights: dict[str, Tensor]) -> None:
    file.parent.mkdir(exist_ok=True)
    write_atomic(file, save({name: tensor.cpu().contiguous() for name, tensor in weights.items()}))


def load_weights(file: Path, into: nn.Module) -> None:
    """Put the weights of a run's file into a module that has just these."""
    try:
        into.load_state_dict(load(file.read_bytes()))
    except (OSError, SafetensorError) as error:
        raise RunError(f"The weights {str(file)!r} cannot be read: {error}.") from error
    except RuntimeError as error:
        raise RunError(f"The weights {str(file)!r} do not fit the run's config.yaml: {error}") from error
