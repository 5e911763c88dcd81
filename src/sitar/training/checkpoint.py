"""A checkpoint is one file with everything that a run needs to continue. Nothing is unpickled."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from sitar.training.attributes import Attributes

State = dict[str, Any]
Count = Annotated[int, Field(ge=0)]
COPIES = 16  # of the weights: itself, the best and the mean ones, and two moments for each optimiser
MOST_REST = 2**26  # bytes of a checkpoint that are no weights, such as names and headers
MOST_PICKLE = 2**24  # bytes of names, shapes and numbers, which take up to a hundred times as much as values
GLOBALS = ("collections OrderedDict", "torch._utils _rebuild_tensor_v2")  # of a checkpoint, beside kinds of storage


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
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
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


def read_state(folder: RunFolder, method: nn.Module) -> bytes | None:
    """Read the last checkpoint of a run that trains `method`, unless it is far too large to be one.

    The bound grows with the weights: how large these are, the settings say.
    """
    most = COPIES * sum(tensor.nbytes for tensor in method.state_dict().values()) + MOST_REST
    if (size := folder.state_size()) > most:
        raise _damaged(folder, ValueError(f"it has {size:,} bytes, and at most {most:,} are read for this model"))
    return folder.state()


def load_state(folder: RunFolder, content: bytes | None) -> State | None:
    """Load the content of the last checkpoint of an unfinished run. None: it was stopped before the first."""
    if content is None:
        return None
    try:
        check_zip(content)
        _check_pickle(content)
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


def _check_pickle(content: bytes) -> None:
    """Refuse a checkpoint with anything that sitar does not write, before torch makes values of it.

    Torch runs no code that a file brings. But it would make a `bytearray` of any size, and hold a container in itself
    as often as it is named: thirty levels of pairs have a billion values. So only names are used twice here.
    """
    if not content.startswith(b"PK\3\4"):
        raise ValueError("it is no zip file from its first byte on")  # torch would read another format
    pickled = torch._C.PyTorchFileReader(io.BytesIO(content)).get_record("data.pkl")  # the bytes that torch will read
    if len(pickled) > MOST_PICKLE:
        raise ValueError(f"its names and shapes have {len(pickled):,} bytes, and at most {MOST_PICKLE:,} are read")
    names: set[object] = set()  # places of the memo that hold a name
    before = ""
    for opcode, value, _ in pickletools.genops(pickled):
        if opcode.name == "GLOBAL" and not _is_ours(str(value)):
            raise ValueError(f"it holds {value!r}, which no checkpoint of sitar does")
        if opcode.name in ("BINPUT", "LONG_BINPUT"):
            (names.add if before in ("GLOBAL", "BINUNICODE") else names.discard)(value)
        elif opcode.name in ("BINGET", "LONG_BINGET") and value not in names:
            raise ValueError("it holds a container twice, which no checkpoint of sitar does")
        before = opcode.name


def _is_ours(name: str) -> bool:
    return name in GLOBALS or (name.startswith("torch ") and name.endswith("Storage"))


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


def check_phase(state: State, lines: Sequence[Mapping[str, Any]], done: Sequence[int], has_epochs: bool) -> None:
    """Refuse a checkpoint of another phase than the one that was logged last.

    `done` are the fewest epochs of each phase before it that has any. `has_epochs` says whether its own phase does.
    """
    logged: list[int] = []  # epochs of each phase
    for line in lines:
        if line.get("epoch") == 1:
            logged.append(0)
        if not logged or line.get("epoch") != logged[-1] + 1:
            raise ValueError(f"metrics.jsonl has an epoch {line.get('epoch')} that follows none")
        logged[-1] += 1
    is_begun = state["progress"] is not None
    if (is_begun and not has_epochs) or len(logged) != len(done) + is_begun or any(map(int.__lt__, logged, done)):
        raise ValueError(f"it is of phase {state['phase'] + 1}, and metrics.jsonl has these epochs: {logged}")


@contextmanager
def taking_up(folder: RunFolder) -> Iterator[None]:
    """Say of a checkpoint that does not fit the run that it is damaged."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise _damaged(folder, error) from error


def snapshot(method: nn.Module, optimisers: Sequence[Optimizer]) -> Callable[[], None]:
    """Return a function that puts a method and its optimisers back as they are now, in place."""
    attributes = Attributes(method)
    weights = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    saved = [
        {parameter: {k: v.clone() for k, v in state.items()} for parameter, state in optimiser.state.items()}
        for optimiser in optimisers
    ]

    @torch.no_grad()
    def restore() -> None:
        attributes.restore()
        for name, tensor in method.state_dict().items():
            tensor.copy_(weights[name])
        for optimiser, before in zip(optimisers, saved, strict=True):
            for parameter, state in optimiser.state.items():
                for key, tensor in state.items():
                    old = before.get(parameter, {}).get(key)
                    tensor.zero_() if old is None else tensor.copy_(old)

    return restore
