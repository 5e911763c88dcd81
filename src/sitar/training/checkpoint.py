"""A checkpoint is one file with everything that a run needs to continue. Nothing is unpickled."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sitar.errors import RunError
from sitar.run_folder import RunFolder

State = dict[str, Any]
STATE_KEYS = ("phase", "progress", "method", "lines", "seconds", "selected_epoch")


def to_cpu(value: Any) -> Any:
    """Copy nested containers, with every tensor on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: to_cpu(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_cpu(item) for item in value]
    return value


def save_state(folder: RunFolder, state: State) -> None:
    buffer = io.BytesIO()
    torch.save(to_cpu(state), buffer)
    folder.write_state(buffer.getvalue())


def load_state(folder: RunFolder) -> State | None:
    """Load the last checkpoint of an unfinished run. Return None if it was stopped before the first."""
    if (content := folder.state()) is None:
        return None
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return {key: state[key] for key in STATE_KEYS}
    except Exception as error:  # it is not specified what torch raises for a damaged file
        raise RunError(
            f"The checkpoint {str(folder.state_file)!r} is damaged ({type(error).__name__}). Start the run again in "
            "another folder."
        ) from error


def snapshot(method: nn.Module, optimisers: Sequence[Optimizer]) -> Callable[[], None]:
    """Return a function that puts weights, buffers and optimisers back as they are now, in place."""
    weights = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    saved = [
        {parameter: {k: v.clone() for k, v in state.items()} for parameter, state in optimiser.state.items()}
        for optimiser in optimisers
    ]

    @torch.no_grad()
    def restore() -> None:
        for name, tensor in method.state_dict().items():
            tensor.copy_(weights[name])
        for optimiser, before in zip(optimisers, saved, strict=True):
            for parameter, state in optimiser.state.items():
                for key, tensor in state.items():
                    old = before.get(parameter, {}).get(key)
                    tensor.zero_() if old is None else tensor.copy_(old)

    return restore
