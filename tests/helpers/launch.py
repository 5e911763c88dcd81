"""Several processes that train one run: started here, or by a launcher as a user starts them."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from sitar.training.processes import Processes, joined

SECONDS = 400  # after which a process that hangs is ended; machines may be busy
Task = Callable[..., None]  # of the processes, and what else it is given


def together(task: Task, *arguments: Any, count: int = 2) -> None:
    """Run `task(processes, *arguments)` in `count` processes that have joined each other. All of them must succeed."""
    context, port = multiprocessing.get_context("spawn"), free_port()
    started = [
        context.Process(target=_joined, args=(environment(rank, count, port), task, arguments)) for rank in range(count)
    ]
    for process in started:
        process.start()
    end = time.monotonic() + SECONDS
    for process in started:
        process.join(max(0.1, end - time.monotonic()))
    hanging = [process for process in started if process.is_alive()]
    for process in hanging:
        process.kill()
        process.join()
    assert not hanging, "processes wait for each other"
    assert [process.exitcode for process in started] == [0] * count


def _joined(settings: Mapping[str, str], task: Task, arguments: tuple[Any, ...]) -> None:
    os.environ.update(settings)
    torch.set_num_threads(1)
    with joined("cpu") as processes:
        assert isinstance(processes, Processes)
        group = weakref.ref(dist.group.WORLD)
        task(processes, *arguments)
    gc.collect()
    assert group() is None, "something keeps the group: its threads outlive the interpreter, which may then abort"


def environment(rank: int, count: int, port: int) -> dict[str, str]:
    """What a launcher tells a process."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def by_hand(arguments: list[str], cwd: Path, count: int = 2) -> list[subprocess.Popen[str]]:
    """Start `sitar ARGUMENTS` in `count` processes, without a launcher that would watch them."""
    port = free_port()
    return [
        started([sys.executable, "-m", "sitar", *arguments], cwd, environment(r, count, port)) for r in range(count)
    ]


def torchrun(arguments: list[str], cwd: Path, count: int = 2) -> subprocess.Popen[str]:
    """Start `torchrun --nproc-per-node COUNT -m sitar ARGUMENTS`."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return started([*launcher, "-m", "sitar", *arguments], cwd, {"OMP_NUM_THREADS": "1"})


def started(command: list[str], cwd: Path, settings: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=cwd, env={**os.environ, **settings}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process: subprocess.Popen[str], seconds: float = SECONDS) -> tuple[int, str, str]:
    """Wait until a process ends. Return its exit status and what it printed."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"it did not end within {seconds} seconds:\n{out}{err}") from None
    return process.returncode, out, err
