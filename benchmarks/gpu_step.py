"""Time a captured step on a GPU in every way that might be faster, and profile it: `python benchmarks/gpu_step.py`.

The model and the loss are those of a preset, on random data of its shape. Times are of the clock, the best of some
turns. Kernels are those of an eager step.

    python benchmarks/gpu_step.py --record reproduce/records/gpu_step.json
    python benchmarks/gpu_step.py --device cpu --presets demo/erm --turns 1    # a trial without a GPU: eager steps
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from contestants import Work, synchronise
from seeds import SHAPES, loops, timed
from torch.profiler import ProfilerActivity, profile

from sitar.models import halving
from sitar.training.environment import commit
from sitar.training.loop import Loop, rehearsal
from sitar.training.tensor_float import allowed

ROWS = 4096
KERNELS = 16  # that a profile names


@contextmanager
def _settings_of_torch(words: Sequence[str]) -> Iterator[None]:
    """Set what a way asks for, for a while."""
    benchmark, is_slow = torch.backends.cudnn.benchmark, halving._is_slow
    torch.backends.cudnn.benchmark = "cudnn.benchmark" in words
    if "doubled" in words:  # images of few channels by plain convolutions, as on a CPU
        halving._is_slow = lambda x, channels: channels < halving.FEW_CHANNELS
    try:
        with allowed("tf32" if "tf32" in words else "float32"):
            yield
    finally:
        torch.backends.cudnn.benchmark, halving._is_slow = benchmark, is_slow


SETTINGS = {
    "compiled": "train.compile=true",
    "tf32": "train.precision=tf32",
    "bfloat16": "train.precision=bfloat16",
}
WAYS = [
    "", "cudnn.benchmark", "tf32", "channels-last", "doubled", "bfloat16", "compiled", "tf32 channels-last",
    "tf32 cudnn.benchmark", "doubled channels-last", "compiled tf32", "compiled bfloat16",
    "compiled tf32 channels-last", "compiled tf32 cudnn.benchmark", "compiled bfloat16 channels-last",
    "compiled bfloat16 cudnn.benchmark channels-last",
]  # fmt: skip


def _loop(preset: str, batch: int, way: str, device: str) -> Loop:
    settings = [f"train.batch_size={batch}", *(SETTINGS[word] for word in way.split() if word in SETTINGS)]
    loop = loops(Work(preset, SHAPES[preset.partition("/")[0]], ROWS, device, tuple(settings)), 1, settings)[0]
    if "channels-last" in way.split():
        loop.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return loop


def measure(preset: str, batch: int, way: str, device: str, turns: int) -> dict[str, Any]:
    """Return the milliseconds of a step in one way, and the seconds until it is ready. It may be impossible."""
    row: dict[str, Any] = {"preset": preset, "batch": batch, "way": way or "as it is"}
    try:
        with _settings_of_torch(way.split()), _loop(preset, batch, way, device).first_turn() as alone:
            assert alone is not None
            began = time.perf_counter()
            turn = timed(alone.loop.build_step(alone), [alone], device)
            first = turn()
            row["seconds_until_ready"] = round(time.perf_counter() - began, 2)
            row["milliseconds"] = round(min(first, *(turn() for _ in range(turns))), 4)
    except Exception as error:  # a way that does not work here is a result, too
        row["error"] = str(error).strip().partition("\n")[0]
    return row


def kernels(preset: str, batch: int, device: str) -> list[dict[str, Any]]:
    """Profile an eager step: microseconds and calls of its kernels, the longest first, and all together."""
    loop = _loop(preset, batch, "", device)
    loop.captured = False
    activity = ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA
    with loop.first_turn() as alone:
        assert alone is not None
        again = rehearsal(loop.build_step(alone), [alone]).step
        for _ in range(3):
            again()
        synchronise(device)
        with profile(activities=[activity]) as profiled:
            for _ in range(10):
                again()
            synchronise(device)
    taken = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    found = sorted(profiled.key_averages(), key=lambda event: -getattr(event, taken))
    rows = [  # a launch is no kernel: it takes no time of the device
        {"kernel": event.key[:120], "microseconds": round(getattr(event, taken) / 10, 1), "calls": event.count / 10}
        for event in found
        if getattr(event, taken) > 0
    ]
    together = {
        "kernel": "all", "microseconds": round(sum(row["microseconds"] for row in rows), 1),
        "calls": sum(row["calls"] for row in rows),
    }  # fmt: skip
    return [{"preset": preset, "batch": batch, **row} for row in [together, *rows[:KERNELS]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["color_mnist/sitar"])
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 512])
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--record", type=Path, help="write what was measured into this file")
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
    rows, profiles = [], []
    for preset in given.presets:
        for batch in given.batches:
            profiles += kernels(preset, batch, given.device)
            for way in given.ways:
                rows.append(measure(preset, batch, way, given.device, given.turns))
                print(json.dumps(rows[-1]), flush=True)
                if given.record:
                    write(given.record, given.device, rows, profiles)
    for row in profiles:
        print(f"{row['batch']:5} {row['microseconds']:9.1f} us {row['calls']:5.1f} {row['kernel']}", flush=True)


def write(path: Path, device: str, rows: list[dict[str, Any]], profiles: list[dict[str, Any]]) -> None:
    """Write what is measured so far."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"cpu, {os.cpu_count()} cores"
    about = {"what": "Milliseconds of a captured step in every way; kernels of an eager one", "device": name}
    record = {**about, "torch": torch.__version__, "commit": commit(), "steps": rows, "kernels": profiles}
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
