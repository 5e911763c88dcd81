"""One run, trained by one process or by several that torchrun or `accelerate launch` has started.

Every process has the whole model and all data. Of each batch it takes its share, and gradients are averaged before each
step of an optimiser. What is computed over a batch is computed over the global batch (`functional/reduce.py`). So n
processes take the steps that one process takes, up to rounding. The first process alone writes and shows things.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import count as counted
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sitar.data.rows import Rows, Stored
from sitar.devices import MPS, resolve_device
from sitar.errors import ConfigError, LostProcessError
from sitar.functional.precision import in_float64
from sitar.functional.reduce import Share, all_reduced, sharing, together_in_steps
from sitar.methods import Method
from sitar.models.global_norm import normalise_globally, refuse_dropout
from sitar.threads import users_number
from sitar.training.threads import Rehearsal, cpu_threads

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

logger = logging.getLogger(__name__)
PATIENCE = timedelta(minutes=30)  # for a process that is there and does not answer
GRACE_SECONDS = 2.0  # until the process that failed has said why: a launcher ends all as soon as one has ended
QUIET_SECONDS = 2.0  # of waiting for another process, before a line says for whom
AGREEMENT = 1e-3  # relative difference of a term between processes, from which it is no rounding
T = TypeVar("T")
Rehearse = Callable[[], AbstractContextManager[Rehearsal | None]]
_joins = counted()


@dataclass(frozen=True)
class Launch:
    """A launcher tells each process these numbers."""

    rank: int
    count: int
    local_rank: int  # on this machine
    local_count: int
    machine: int


def launch() -> Launch | None:
    """Return what torchrun or `accelerate launch` has told this process. None: it was started by itself."""
    needed = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if not all(os.environ.get(name) for name in needed):
        return None
    numbers = {name: os.environ[name] for name in needed[:3]}
    numbers |= {name: os.environ.get(name, usual) for name, usual in (("LOCAL_WORLD_SIZE", "1"), ("GROUP_RANK", "0"))}
    if wrong := [f"{name}={value}" for name, value in numbers.items() if not re.fullmatch("[0-9]{1,9}", value)]:
        raise ConfigError(
            f"The environment says that a launcher has started this process, but {', '.join(wrong)} is no number. "
            "Start it with torchrun, or remove RANK, WORLD_SIZE and LOCAL_RANK from the environment."
        )
    found = Launch(*map(int, numbers.values()))
    if found.rank >= found.count:
        raise ConfigError(
            f"The environment says that a launcher has started this process as number {found.rank} of {found.count}, "
            "counted from 0. Start it with torchrun, or remove RANK, WORLD_SIZE and LOCAL_RANK from the environment."
        )
    return found


class Processes:
    """This is one process that trains a run alone: what several have to do for each other, it need not do."""

    rank = 0
    count = 1

    @property
    def is_first(self) -> bool:
        """Say whether this process writes the run folder, shows progress and tells trackers."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """Return the device that this process computes on."""
        return resolve_device(name)

    def cpu_threads(self, rehearse: Rehearse, recorded: int | None) -> AbstractContextManager[None]:
        """Take the number of CPU threads that is right for this process (`training/threads.py`)."""
        return cpu_threads(rehearse, recorded)

    def prepare(self, method: Method) -> None:
        """Have a method compute over the global batch, and start from the weights of the first process."""

    def part(self, size: int) -> slice:
        """Return which of `size` samples belong to this process."""
        return slice(0, size)

    def sharing(self, batch_size: int) -> AbstractContextManager[None]:
        """Say, for the time of a step, that this process holds its part of a global batch of this size."""
        return nullcontext()

    def average(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace the gradient of each parameter by its mean over all processes."""

    def same(self, module: nn.Module) -> None:
        """Give weights and buffers of the first process to all."""

    def agree(self, terms: Mapping[str, Tensor]) -> None:
        """Refuse a method whose terms differ between processes: they are not those of the global batch."""

    def over(self, function: Callable[[Stored], Tensor], rows: Stored) -> Tensor:
        """Apply a function of samples, each process to its part, and return the results for all of them."""
        return function(rows)

    def in_turn(self, what: str, make: Callable[[], T]) -> T:
        """Make something that is kept in a cache. The first process of a machine makes it, and then the others."""
        return make()

    def told(self, make: Callable[[], T]) -> T:
        """Return what the first process makes: bytes, or anything that JSON can say."""
        return make()


ALONE = Processes()


class ManyProcesses(Processes):
    """These are several processes, seen by one of them."""

    def __init__(self, launched: Launch, store: Store) -> None:
        self.launch = launched
        self.rank, self.count = launched.rank, launched.count
        self.store = store

    def device(self, name: str) -> torch.device:
        if self.count > 1 and ":" in name:
            raise ConfigError(
                f"--device {name} would put all {self.count} processes on one device. Use --device cuda: each process "
                "then takes a GPU of its own."
            )
        device = resolve_device(name)
        if device.type == MPS:
            if name != "auto":
                raise ConfigError("The GPU of a Mac trains on one process. Use --device cpu, or start it by itself.")
            return resolve_device("cpu")
        if device.type != "cuda":
            return device
        gpus = torch.cuda.device_count()
        if self.launch.local_rank >= gpus:
            raise ConfigError(
                f"{self.launch.local_count} processes were started on a machine with {gpus} GPUs, and each needs one "
                "of its own. Start fewer, or use --device cpu."
            )
        torch.cuda.set_device(self.launch.local_rank)
        return torch.device("cuda", self.launch.local_rank)

    def cpu_threads(self, rehearse: Rehearse, recorded: int | None) -> AbstractContextManager[None]:
        return super().cpu_threads(rehearse, recorded) if self.count == 1 else self._even_threads(recorded)

    @contextmanager
    def _even_threads(self, recorded: int | None) -> Iterator[None]:
        """Take the user's number, or an even share of the cores. Steps of several processes cannot be tried out."""
        before = torch.get_num_threads()
        torch.set_num_threads(
            self.told(lambda: users_number() or recorded or max(1, before // self.launch.local_count))
        )
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def prepare(self, method: Method) -> None:
        if self.count > 1:
            if method.one_process is not None:
                raise ConfigError(f"This method trains on one process only. {method.one_process}")
            refuse_dropout(method)
            normalise_globally(method)
        self.same(method)

    def part(self, size: int) -> slice:
        return slice(size * self.rank // self.count, size * (self.rank + 1) // self.count)

    def sharing(self, batch_size: int) -> AbstractContextManager[None]:
        if batch_size < self.count:
            raise ConfigError(
                f"A batch has {batch_size} samples, and {self.count} processes cannot share it: each needs at least "
                "one. Use a larger train.batch_size, or fewer processes."
            )
        own = self.part(batch_size)
        return sharing(Share(own.start, own.stop, batch_size))

    def average(self, parameters: Sequence[nn.Parameter]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        mean = all_reduced(torch.cat([gradient.flatten() for gradient in gradients])) / self.count
        for gradient, part in zip(gradients, mean.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view(gradient.shape))

    @torch.no_grad()
    def same(self, module: nn.Module) -> None:
        for tensor in module.state_dict().values():
            tensor.copy_(_of_first(tensor))

    def agree(self, terms: Mapping[str, Tensor]) -> None:
        mine = torch.cat([in_float64(term.detach()).flatten() for term in terms.values()]).cpu()
        same = torch.isclose(mine, _of_first(mine), rtol=AGREEMENT, atol=1e-6, equal_nan=True)
        parts = all_reduced((~same).int()).split([term.numel() for term in terms.values()])
        different = [name for name, part in zip(terms, parts, strict=True) if part.any()]
        if different:
            raise ConfigError(
                f"The terms {', '.join(different)} of this method's loss differ between processes, so they are not "
                "those of the global batch. Train on one process. docs/extending.md says how a loss is written for "
                "several."
            )

    def over(self, function: Callable[[Stored], Tensor], rows: Stored) -> Tensor:
        if len(rows) < self.count:
            return function(rows)
        own = self.part(len(rows))
        results = function(rows.select(torch.arange(own.start, own.stop)) if isinstance(rows, Rows) else rows[own])
        everything = results.new_zeros((len(rows), *results.shape[1:]))
        everything[own] = results
        return all_reduced(everything)

    def in_turn(self, what: str, make: Callable[[], T]) -> T:
        key = f"{what} {self.launch.machine}"
        if self.launch.local_rank > 0:
            self._wait(key, what)
        made = make()
        self.store.set(key, "made")
        return made

    def _wait(self, key: str, what: str) -> None:
        began, silent = time.monotonic(), True
        while not self.store.check([key]):
            if self.store.check(["failed"]):
                raise LostProcessError(told=True)
            if silent and time.monotonic() - began > QUIET_SECONDS:
                silent = False
                first = self.rank - self.launch.local_rank
                logger.info("Process %d waits for process %d, which prepares the %s.", self.rank, first, what)
            time.sleep(0.05)

    def told(self, make: Callable[[], T]) -> Any:
        value: Any = make() if self.is_first else None
        packed = value if isinstance(value, bytes) else json.dumps(value).encode()
        length, is_bytes = _of_first(torch.tensor([len(packed), isinstance(value, bytes)])).tolist()
        content = torch.frombuffer(bytearray(packed), dtype=torch.uint8) if self.is_first else torch.zeros(length)
        content = _of_first(content.to(torch.uint8)).numpy().tobytes()
        return content if is_bytes else json.loads(content)

    def is_first_to_fail(self) -> bool:
        """Say whether no other process has failed before. This one then says what has happened."""
        try:
            return self.store.add("failed", 1) == 1
        except RuntimeError:  # the process that keeps the store is gone, and nobody can be asked
            return True


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the processes of one launch, and leave them at the end. A process that was started by itself is alone.

    If one of them fails, all stop. The first that fails raises what has happened, and all others a LostProcessError.
    """
    launched = launch()
    if launched is None:
        yield ALONE
        return
    if not dist.is_available():
        raise ConfigError("This torch was built without torch.distributed. Start one process, without a launcher.")
    if dist.is_initialized():
        raise ConfigError(
            "torch.distributed is initialised already. `sitar.train` does this itself where several processes were "
            "started: call it before, or after torch.distributed.destroy_process_group()."
        )
    import torch.distributed.nn.functional  # its defaults hold the group, for ever, if there is one when it is imported
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", timeout=PATIENCE))
    processes = ManyProcesses(launched, PrefixStore(f"sitar {next(_joins)}", store))
    on_gpus = device != "cpu" and torch.cuda.is_available()
    backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
    with _muted(processes), together_in_steps():
        try:
            dist.init_process_group(
                backend, store=PrefixStore("group", processes.store),
                rank=launched.rank, world_size=launched.count, timeout=PATIENCE,
            )  # fmt: skip
            yield processes
        except BaseException as error:
            told = not processes.is_first_to_fail()
            if dist.is_initialized() and not on_gpus:  # NCCL would wait for steps that never end
                dist.destroy_process_group()
            if told:
                time.sleep(GRACE_SECONDS)
                raise LostProcessError(told=True) from error
            raise
        dist.destroy_process_group()


def _of_first(tensor: Tensor) -> Tensor:
    """Return the tensor of the first process. All have one of this shape."""
    value = tensor.detach().clone(memory_format=torch.contiguous_format)
    try:
        dist.broadcast(value, 0)
    except RuntimeError as error:
        raise LostProcessError from error
    return value


@contextmanager
def _muted(processes: Processes) -> Iterator[None]:
    """Have only the first process say what all of them would say."""
    said, waiting = logging.getLogger("sitar"), logger.level
    level = said.level
    if not processes.is_first:
        logger.setLevel(said.getEffectiveLevel())
        said.setLevel(logging.ERROR)
    try:
        yield
    finally:
        said.setLevel(level)
        logger.setLevel(waiting)
