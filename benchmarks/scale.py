"""Measure what a cost model needs of a machine: `python benchmarks/scale.py [--device cuda] [--out FILE.json]`.

Rates: multiplications of matrices, copies in memory and to the device, and of the disk, whose file is dropped from the
page cache before it is read: from front to back, in random rows, and in the order of train.shuffle=blocks. Steps: the
bytes and floating-point operations of a training step, counted by torch, and how many samples it trains in a second. On
a CPU this is a second of one core, which other programs change little, and so is that of a large product of matrices.
From these, and from the records rows.json and images_speed.json, the script computes what 10^8 images and 10^9
embeddings cost on this machine (docs/scale.md): at the rate of the step, and at that of the product.

`--keep RECORD.json` takes the rates of device and disk from an earlier record, and measures the steps alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contestants import Work, ours
from torch.utils.flop_counter import FlopCounterMode

from sitar.data.rows import Rows
from sitar.data.types import Task, TrainBatch
from sitar.methods import build_method
from sitar.presets import load_config
from sitar.training.environment import commit
from sitar.training.seeding import epoch_order

RECORDS = Path(__file__).resolve().parents[1] / "reproduce" / "records"
WIDTH = 512  # of an embedding
READ_ROWS = 4096  # that are read in random order
BATCH = 512
ROWS = 2048  # that a step is timed with
TURNS, SECONDS = 5, 0.7  # of a step, and of a turn
STEPS: dict[str, tuple[str, tuple[int, ...], list[str]]] = {
    "embeddings": ("features/erm", (WIDTH,), ["data.file=x.parquet"]),
    "images": ("folder/erm", (3, 64, 64), ["data.root=x"]),
    "sitar": ("folder/sitar_best", (3, 64, 64), ["data.root=x"]),
}


def best(function: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Return the shortest time of a function, in seconds."""
    seconds = []
    for _ in range(repeats + 1):  # the first is not counted
        _wait(device)
        began = time.perf_counter()
        function()
        _wait(device)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rates_of(device: torch.device) -> dict[str, float]:
    """Measure how fast a device computes and copies."""
    size = 8192 if device.type == "cuda" else 1024
    found = {}
    for kind in (torch.float32, torch.bfloat16) if device.type == "cuda" else (torch.float32,):
        a = torch.randn(size, size, device=device, dtype=kind)
        found[f"gigaflops_{str(kind).removeprefix('torch.')}"] = 2 * size**3 / best(lambda a=a: a @ a, device) / 1e9
    x = torch.ones(2**28 if device.type == "cuda" else 2**25, device=device)
    y = torch.empty_like(x)
    found["memory_gb_per_second"] = 2 * x.nbytes / best(lambda: y.copy_(x), device) / 1e9
    if device.type == "cuda":
        host = torch.ones(2**26).pin_memory()
        there = torch.empty(2**26, device=device)
        found["to_device_gb_per_second"] = host.nbytes / best(lambda: there.copy_(host), device) / 1e9
    return found


def rate_of_core() -> float:
    """Measure how many floating-point operations a large product of matrices does in a second of one core."""
    a, before = torch.randn(2048, 2048), torch.get_num_threads()
    torch.set_num_threads(1)
    seconds = []
    for _ in range(12):
        began = time.process_time()
        torch.mm(a, a)
        seconds.append(time.process_time() - began)
    torch.set_num_threads(before)
    return 2 * 2048**3 / min(seconds) / 1e9


def rates_of_disk(folder: Path, gigabytes: float) -> dict[str, Any]:
    """Measure how fast a file of embeddings is written and read, without the page cache."""
    rows = int(gigabytes * 1e9 / (2 * WIDTH))
    block = np.random.default_rng(0).standard_normal((8192, WIDTH)).astype(np.float16)
    path = Path(tempfile.mkstemp(dir=folder, suffix=".npy")[1])
    try:
        began = time.perf_counter()
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": (rows, WIDTH)})
            for start in range(0, rows, len(block)):
                file.write(block[: rows - start].data.cast("B"))
            file.flush()
            os.fsync(file.fileno())
        found: dict[str, Any] = {"write_gb_per_second": path.stat().st_size / (time.perf_counter() - began) / 1e9}
        random = np.random.default_rng(1).integers(rows, size=READ_ROWS)
        blocks = epoch_order(torch.arange(rows), BATCH, seed=0, phase=0, epoch=0, shuffle="blocks").numpy()
        orders = {"front_to_back": np.arange(rows), "random": random, "sorted": np.sort(random)}
        orders["blocks"] = blocks.ravel()[: min(rows, 2**17)]
        for name, order in orders.items():
            rate = len(order) / _read(path, order)
            found[name] = {"rows_per_second": rate, "megabytes_per_second": rate * 2 * WIDTH / 1e6}
        return found
    finally:
        path.unlink()


def _read(path: Path, order: np.ndarray) -> float:
    """Read rows in an order, in batches, from a file that is not in the page cache. Return the seconds."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    rows = Rows(np.load(path, mmap_mode="r"), np.arange(len(order)))
    began = time.perf_counter()
    for start in range(0, len(order), BATCH):
        rows.gather(order[start : start + BATCH])
    return time.perf_counter() - began


def cost_of_step(preset: str, shape: tuple[int, ...], overrides: list[str]) -> dict[str, float]:
    """Count the floating-point operations of a training step for each sample, forwards and backwards."""
    features = (torch.zeros(shape), torch.ones(shape)) if len(shape) == 1 else None
    config = load_config(preset, overrides, 0)
    method = build_method(config, Task(shape, 2, 10**6, (5 * 10**5, 5 * 10**5), features))
    phase: Any = next(method.phases())
    batch = TrainBatch(torch.rand(64, *shape), torch.arange(64) % 2, torch.arange(64))
    method.train()
    with FlopCounterMode(display=False) as counter:
        for objective in phase.objectives:
            objective.loss(batch)["loss"].backward()
    parameters = sum(p.numel() for p in method.parameters())
    return {"flops": counter.get_total_flops() / 64, "parameters": parameters}


def rate_of_step(preset: str, shape: tuple[int, ...], overrides: list[str], device: str) -> dict[str, float]:
    """Measure how many samples a second the step of a run trains: of one core, on a CPU, and else of the device."""
    work = Work(preset, shape, ROWS, device, tuple(overrides))
    turn, clock = ours(work, threads=1), time.process_time if device == "cpu" else time.perf_counter
    turn(3)
    taken, steps = [], 1
    while len(taken) < TURNS:
        began = clock()
        turn(steps)
        seconds = clock() - began
        if seconds < SECONDS:
            steps *= 2
        else:
            taken.append(seconds / steps)
    return {"batch": work.config.train.batch_size, "samples_per_second": work.config.train.batch_size / min(taken)}


def costs(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Compute bytes and hours from the rates that were measured, and money from the price of an hour."""
    measured = json.loads((RECORDS / "rows.json").read_text(encoding="utf-8"))["measurements"]
    rows = next(one for one in reversed(measured) if "prepare" in one)
    images = json.loads((RECORDS / "images_speed.json").read_text(encoding="utf-8"))["measurements"][-1]
    embeddings_per_core = rows["rows"] / rows["prepare"]["cpu"]
    images_per_core = images["images"] / images["seconds"]["preparation"]["processors"]
    on_gpu = "gigaflops_of_a_core" not in found
    most = max(value for name, value in found["device"].items() if name.startswith("gigaflops"))
    gigaflops = most if on_gpu else found["gigaflops_of_a_core"] * found["cores"]
    disk = found["disk"]["front_to_back"]["megabytes_per_second"] / 1e3
    kinds = {
        "embeddings": (10**9, 2 * WIDTH, embeddings_per_core, "embeddings"),
        "images": (10**8, 3 * 64 * 64, images_per_core, "images"),
        "images with SITAR": (10**8, 3 * 64 * 64, images_per_core, "sitar"),
    }
    listed = []
    for what, (samples, size, per_core, of) in kinds.items():
        step = found["steps"][of]
        gigabytes, flops = samples * size / 1e9, step["flops"]
        rate = step["samples_per_second"] * (1 if on_gpu else found["cores"])
        training = samples / rate / 3600
        to_prepare = samples / per_core / 3600
        computing, reading = samples * flops / (gigaflops * 1e9) / 3600, gigabytes / disk / 3600
        mixed = gigabytes / (found["disk"]["blocks"]["megabytes_per_second"] / 1e3) / 3600
        listed.append(
            {
                "of": what,
                "samples": samples,
                "flops_a_sample": flops,
                "cache_terabytes": gigabytes / 1e3,
                "labels_gigabytes": 5 * 8 * samples / 1e9,
                "core_hours_to_prepare": to_prepare,
                "disk_hours_an_epoch": reading,
                "petaflops_an_epoch": samples * flops / 1e15,
                "hours_an_epoch_at_most_flops": computing,
                "hours_an_epoch_at_the_rate_of_the_step": training,
                "gigaflops_of_the_product": gigaflops,
                "gigaflops_reached": rate * flops / 1e9,
                "disk_hours_in_blocks": mixed,
                "disk_hours_in_random_rows": samples / found["disk"]["random"]["rows_per_second"] / 3600,
                "money_to_prepare": found["price_an_hour"] * to_prepare / found["cores"],
                "money_an_epoch_at_most_flops": found["price_an_hour"] * max(computing, mixed),
                "money_an_epoch": found["price_an_hour"] * max(training, mixed),
            }
        )
    return listed


def rounded(value: Any, digits: int = 4) -> Any:
    """Round every number in a record to a few significant digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, float) and value:
        return round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of the file that the disk is tried with")
    parser.add_argument("--within", type=Path, default=Path(tempfile.gettempdir()), help="folder on the disk to try")
    parser.add_argument("--price", type=float, default=0.1, help="of an hour of the machine, in your currency")
    parser.add_argument("--keep", type=Path, help="a record whose rates of device and disk are taken")
    parser.add_argument("--out", type=Path, help="a record to write")
    options = parser.parse_args()
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"
    record: dict[str, Any] = {
        "what": "Rates of a machine, and what many samples cost at these rates.",
        "command": shlex.join(["python", "benchmarks/scale.py", *sys.argv[1:]]),
        "machine": name,
        "commit": commit(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "price_an_hour": options.price,
    }
    if options.keep:
        kept = json.loads(options.keep.read_text(encoding="utf-8"))
        made = {key: kept[key] for key in ("commit", "load_before") if key in kept}
        record |= {"device": kept["device"], "disk": kept["disk"], "rates_made": kept.get("rates_made", made)}
    else:
        record |= {"device": rates_of(device), "disk": rates_of_disk(options.within, options.gigabytes)}
    if device.type != "cuda":
        record["gigaflops_of_a_core"] = rate_of_core()
    record["steps"] = {name: cost_of_step(*step) | rate_of_step(*step, options.device) for name, step in STEPS.items()}
    record = rounded(record | {"costs": costs(record)})
    print(json.dumps(record, indent=1))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
