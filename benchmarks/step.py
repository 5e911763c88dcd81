"""Time one training step of SITAR and list its kernels: `python benchmarks/step.py [--batch 512 64]`, on a GPU.

A step is what training captures as one CUDA graph: forward, backward and Adam, on the network and images of ColorMNIST.
The first table has its milliseconds under each choice of precision, memory format and kernel search. The second lists
the kernels of the plain step, longest first.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from sitar.data.types import Task, TrainBatch
from sitar.methods import build_method
from sitar.methods.sitar import SITAR
from sitar.presets import load_config

WARM_UP, REPLAYS, PROFILED = 5, 200, 10


def make_step(batch: int, device: str, *, channels_last: bool = False, bfloat16: bool = False) -> Callable[[], None]:
    """Return a function that does one step of `color_mnist/sitar` on random images."""
    torch.manual_seed(0)
    config = load_config("color_mnist/sitar", [], 0)
    method = build_method(config, Task((3, 28, 28), 2, 50_000, (25_000, 25_000))).to(device)
    x = torch.rand(batch, 3, 28, 28, device=device)
    if channels_last:
        method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    assert isinstance(method, SITAR)
    y = torch.arange(batch, device=device) % 2
    given = TrainBatch(x=x, y=y, index=torch.arange(batch, device=device))
    on_gpu = device == "cuda"
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-3, fused=on_gpu, capturable=on_gpu)

    def step() -> None:
        optimiser.zero_grad(set_to_none=False)
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            loss = method.loss(given)["loss"]
        loss.backward()
        optimiser.step()

    return step


def milliseconds(step: Callable[[], None]) -> float:
    """Capture a step and return how long one replay takes."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / REPLAYS


def kernels(step: Callable[[], None]) -> list[tuple[str, float, float]]:
    """Return name, calls and microseconds of each kernel of a step, longest first."""
    for _ in range(WARM_UP):
        step()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in profiled.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found.setdefault(event.name, []).append(event.device_time)
    rows = [(name, len(times) / PROFILED, sum(times) / PROFILED) for name, times in found.items()]
    return sorted(rows, key=lambda row: -row[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, nargs="+", default=[512, 64])
    parser.add_argument("--kernels", type=int, default=25, help="how many kernels to list")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        make_step(8, "cpu")()
        raise SystemExit("There is no GPU here. One step on the CPU works.")
    for batch in options.batch:
        for tf32, last, bfloat16, search in itertools.product((False, True), repeat=4):
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            torch.backends.cudnn.benchmark = search
            words = {"tf32": tf32, "channels-last": last, "bfloat16": bfloat16, "search": search}
            named = ", ".join(word for word, on in words.items() if on) or "plain"
            found = milliseconds(make_step(batch, "cuda", channels_last=last, bfloat16=bfloat16))
            print(f"batch {batch:5}  {found:7.3f} ms  {named}", flush=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = False
    for batch in options.batch:
        rows = kernels(make_step(batch, "cuda"))
        total = sum(row[2] for row in rows)
        print(f"batch {batch}: {sum(row[1] for row in rows):.0f} kernels, {total:.0f} microseconds a step")
        for name, calls, microseconds in rows[: options.kernels]:
            print(f"{microseconds:9.1f} {calls:5.1f}x {name[:100]}")


if __name__ == "__main__":
    main()
