"""A checkpoint is one file with everything that a run needs to continue. Nothing is unpickled."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NotRequired

import torch
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import TypedDict

from sitar.errors import RunError
from sitar.integrity import check_zip
from sitar.run_folder import RunFolder

State = dict[str, Any]
Count = Annotated[int, Field(ge=0)]


@with_config(ConfigDict(arbitrary_types_allowed=True))
class _Best(TypedDict):
    value: float | None
    epoch: Count | None
    weights: dict[str, Tensor] | None
    stale: Count


@with_config(ConfigDict(arbitrary_types_allowed=True))
class _Average(TypedDict):
    seen: Count
    mean: dict[str, Tensor]


class _Progress(TypedDict):
    epoch: Annotated[int, Field(ge=1)]
    optimisers: list[dict[str, Any]]
    best: _Best
    average: NotRequired[_Average]


@with_config(ConfigDict(arbitrary_types_allowed=True))
class _State(TypedDict):
    """This is what a checkpoint holds."""

    phase: Count
    progress: _Progress | None
    method: dict[str, Tensor]
    lines: Count
    log: NotRequired[str]  # checksum of these lines; earlier releases had none
    seconds: Annotated[float, Field(ge=0)]
    selected_epoch: Count | None


_STATE = TypeAdapter(_State)


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


def load_state(folder: RunFolder, content: bytes | None) -> State | None:
    """Load the content of the last checkpoint of an unfinished run. None: it was stopped before the first."""
    if content is None:
        return None
    try:
        check_zip(content)
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        state = {key: state[key] for key in _State.__annotations__ if key in state or key != "log"}
        _check_tensors(state)
        _STATE.validate_python(state, strict=True)
        folder.kept_metrics(state["lines"], state.get("log"))
        _check_epoch(state, folder)
        return state
    except RunError:  # it names another file
        raise
    except Exception as error:  # it is not specified what torch raises for a damaged file
        raise _damaged(folder, error) from error


def _damaged(folder: RunFolder, error: Exception) -> RunError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return RunError(
        f"The checkpoint {str(folder.state_file)!r} is damaged ({reason}). Start the run again in another folder."
    )


def _check_tensors(value: Any) -> None:
    """Refuse a tensor that claims to be larger than what is stored of it: a copy of it could fill the memory."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.nbytes > value.untyped_storage().nbytes():
            raise ValueError(f"a tensor claims the shape {tuple(value.shape)}, and less is stored")
    elif isinstance(value, dict):
        for item in value.values():
            _check_tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_tensors(item)


def _check_epoch(state: State, folder: RunFolder) -> None:
    """Refuse a checkpoint that counts other epochs than were logged."""
    lines = folder.metrics()[: state["lines"]]
    if state["progress"] is None or not lines or len(lines) < state["lines"]:  # a file that is cut, the folder names
        return
    if lines[-1].get("epoch") != (epoch := state["progress"]["epoch"]):
        raise ValueError(f"it is of epoch {epoch}, and metrics.jsonl of epoch {lines[-1].get('epoch')}")


@contextmanager
def taking_up(folder: RunFolder) -> Iterator[None]:
    """Say of a checkpoint that does not fit the run that it is damaged."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise _damaged(folder, error) from error


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
