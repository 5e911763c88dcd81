"""Time training side by side with what a user would write: `python benchmarks/compare.py [--record FILE]`.

It prints tables of milliseconds, ratios and samples a second, all measured in one run:

- images: a step of SITAR and of its control in sitar, of SITAR in an eager loop with a DataLoader and in the same loop
  without loading, and of pythae's beta-VAE on the same layers (`pip install --group benchmarks` has pythae);
- images of 64x64: SITAR in sitar, in the loop with a DataLoader, and without loading;
- features: a step of ERM in sitar and in an eager loop, and scikit-learn's logistic regression;
- start: the seconds until sitar is imported, and until a first step is done;
- the limit: the bytes and the operations of a step over what the device copies and multiplies in a second;
- cost: what a step, or an epoch, takes when something is doubled;
- operators: where the time of a step goes, with torch's layers and with ours.

Contestants take turns, and the best turn of each counts (benchmarks/contestants.py). `--device cuda` runs the same on a
GPU. `--quick` tries everything with few turns: its times say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from contestants import (
    Work,
    arithmetic_rate,
    bandwidth,
    contest,
    data_loader,
    features_loader,
    logistic_regression,
    on_device,
    one_thread,
    ours,
    plain_step,
    pythae,
    take_turns,
)
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from sitar.data.types import TrainBatch
from sitar.devices import device_name, resolve_device

SITAR, LOADER, RESIDENT, PYTHAE = "sitar", "DataLoader loop", "loop without loading", "pythae beta-VAE"
CONTROL, LOGISTIC = "sitar, control", "logistic regression"
IMAGE, WIDE, FEATURES = (3, 28, 28), (3, 64, 64), (512,)
ROWS, WIDE_ROWS = 20_000, {"cpu": 10_000, "cuda": 200_000}
PRESETS = {"cpu": "demo/sitar", "cuda": "color_mnist/sitar"}
CONTESTS = ("images", "images of 64x64", "features")
LONGER = {"features": 10}  # whose steps are short: the first ones after a pause would count too much
OPERATORS, PROFILED = 12, 20


class Bytes(TorchDispatchMode):
    """Counts the bytes that operations read and write. Views and operations without tensors cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and "empty" not in func.__name__ and "detach" not in func.__name__:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if torch.is_tensor(leaf)]
            name = func.__name__.partition(".")[0]
            if name == "convolution":  # as the profiler calls the two kinds on a CPU
                name = "_convolution" if args[6] else "mkldnn_convolution"
            self.of[name] = self.of.get(name, 0) + sum(tensor.nbytes for tensor in tensors)
        return result


def contests(device: str, turns: int, steps: int) -> dict[str, Any]:
    """Let the contestants take turns. Return the milliseconds of a step, samples a second, and how much slower."""
    images = Work(PRESETS[device], IMAGE, ROWS, device)
    control = Work(PRESETS[device], IMAGE, ROWS, device, ("method.alpha=0", "method.lambda=0"))
    wide = Work(PRESETS[device], WIDE, WIDE_ROWS[device] if steps > 3 else 1000, device)
    features = Work("npz/erm", FEATURES, ROWS, device, ("data.file=none",))
    found: dict[str, Any] = {}
    for title, entries in {
        "images": {SITAR: (ours, images), CONTROL: (ours, control), RESIDENT: (on_device, images),
                   LOADER: (data_loader, images), PYTHAE: (pythae, images)},
        "images of 64x64": {SITAR: (ours, wide), RESIDENT: (on_device, wide), LOADER: (data_loader, wide)},
        "features": {SITAR: (ours, features), LOADER: (features_loader, features),
                     LOGISTIC: (logistic_regression, features)},
    }.items():  # fmt: skip
        with contest(entries) as started:
            take_turns(started, turns, steps * LONGER.get(title, 1))
            batch = next(iter(started.values())).work.config.train.batch_size
            quickest = started[SITAR].best
            if steps > 3 and (missing := entries.keys() - started.keys()):
                sys.exit(f"{', '.join(missing)} is missing: python -m pip install --group benchmarks")
            found[title] = {
                name: {
                    "milliseconds": round(one.best, 3),
                    "samples_per_second": round(1000 * batch / one.best),
                    "times_slower": round(one.best / quickest, 2),
                    "processor_milliseconds": round(min(one.processor_milliseconds), 3),
                    "turns": [round(taken, 3) for taken in one.milliseconds],
                }
                for name, one in started.items()
            }
    return found


def limit(device: str, milliseconds: float) -> dict[str, float]:
    """Return what a step could take at the least, if it moved its bytes or did its operations as fast as can be."""
    step, flops, moved = _one_step(device), FlopCounterMode(display=False), Bytes()
    with flops:
        step()
    with moved:
        step()
    total, operations = sum(moved.of.values()), flops.get_total_flops()
    speed, rate = bandwidth(device), arithmetic_rate(device)
    least = 1000 * max(total / speed, operations / rate)
    return {
        "megabytes": round(total / 1e6, 1), "megaflops": round(operations / 1e6, 1),
        "gigabytes_per_second": round(speed / 1e9, 1), "gigaflops_per_second": round(rate / 1e9, 1),
        "milliseconds_of_bytes": round(1000 * total / speed, 3),
        "milliseconds_of_operations": round(1000 * operations / rate, 3),
        "times_the_limit": round(milliseconds / least, 2),
    }  # fmt: skip


def _one_step(device: str) -> Callable[[], None]:
    work = Work(PRESETS[device], IMAGE, 2048, device)
    _, step = plain_step(work)
    batch = work.data().train.batch(torch.arange(work.config.train.batch_size))
    x, y = batch.x.to(device), batch.y.to(device)
    step(x, y)
    return lambda: step(x, y)


def costs(device: str, turns: int, steps: int) -> dict[str, list[dict[str, float]]]:
    """Return what a step takes when the latent, the image or the batch is doubled, and what several runs at once take.

    An image is doubled in its pixels. Rows are those of an epoch, which has a step for each batch.
    """
    preset = PRESETS[device]

    def work(*settings: str, shape: tuple[int, ...] = IMAGE, rows: int = 4096) -> Work:
        return Work(preset, shape, rows, device, settings)

    asked = {
        "latent size": {n: work(f"model.latent_dim={n}") for n in (10, 20, 40, 80)},
        "pixels": {h * w: work(shape=(3, h, w)) for h, w in ((28, 28), (28, 56), (56, 56), (56, 112))},
        "batch": {n: work(f"train.batch_size={n}") for n in (64, 128, 256, 512, 1024)},
    }
    found = {}
    for title, works in asked.items():
        prepared, taken = {value: ours(one) for value, one in works.items()}, {value: [] for value in works}
        for _ in range(turns):
            for value, turn in prepared.items():
                began = time.perf_counter()
                turn(steps)
                taken[value].append(1000 * (time.perf_counter() - began) / steps)
        found[title] = _doubled({value: min(all_turns) for value, all_turns in taken.items()})
    with contest({str(run): (one_thread, work()) for run in range(4)}) as started:  # as the engine of sweeps has them
        runs = list(started.values())
        together: dict[int, list[float]] = {1: [], 2: [], 4: []}
        for _ in range(turns):
            for number, all_turns in together.items():
                for one in runs[:number]:
                    one.begin(steps)
                all_turns.append(max([one.end() for one in runs[:number]]))
        found["runs at once"] = _doubled({number: min(all_turns) for number, all_turns in together.items()})
        batch = work().config.train.batch_size
        epochs: dict[int, list[float]] = {rows: [] for rows in ((500, 1000) if steps < 10 else (5000, 10000, 20000))}
        for _ in range(max(1, turns // 3)):
            for rows, all_turns in epochs.items():
                count = -(-rows // batch)
                runs[0].begin(count)
                all_turns.append(count * runs[0].end())
        found["rows of an epoch"] = _doubled({rows: min(all_turns) for rows, all_turns in epochs.items()})
    return found


def start(device: str) -> dict[str, float]:
    """Return the seconds until a new process has imported sitar, and until its first step is done after that."""
    script = (
        "import time; began = time.perf_counter(); import contestants, sitar.training.run; "
        "imported = time.perf_counter(); "
        f"contestants.ours(contestants.Work({PRESETS[device]!r}, {IMAGE}, 2048, {device!r}))(1); "
        "print(imported - began, time.perf_counter() - imported)"
    )
    taken = [
        subprocess.run(
            [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
        for _ in range(3)
    ]
    imported, ready = zip(*(map(float, one.stdout.split()[-2:]) for one in taken), strict=True)
    return {"seconds_to_import": round(min(imported), 2), "seconds_to_first_step": round(min(ready), 2)}


def _doubled(milliseconds: dict[int, float]) -> list[dict[str, float]]:
    """Return rows of a table: each value, its milliseconds, and how many times those of the value before."""
    rows: list[dict[str, float]] = []
    for value, taken in milliseconds.items():
        times = {"times": round(taken / rows[-1]["milliseconds"], 2)} if rows else {}
        rows.append({"value": value, "milliseconds": round(taken, 3), **times})
    return rows


def operators(device: str) -> dict[str, list[dict[str, Any]]]:
    """Return the operators of a step that take longest, with their bytes: with torch's layers, and with ours."""
    found = {}
    torch.set_num_threads(1)
    for title in ("torch", "sitar"):
        step = _one_step(device) if title != "sitar" else _our_step(device)
        moved = Bytes()
        with moved:
            step()
        for _ in range(5):
            step()
        kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
        with profile(activities=kinds) as profiled:
            for _ in range(PROFILED):
                step()
        rows = []
        for event in profiled.key_averages():
            name = event.key.removeprefix("aten::")
            micro = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
            calls = event.count / PROFILED
            rows.append({"operator": name, "milliseconds": round(micro / PROFILED / 1000, 3), "calls": round(calls, 1),
                         "megabytes": round(moved.of.get(name, 0) / 1e6, 2)})  # fmt: skip
        found[title] = sorted(rows, key=lambda row: -row["milliseconds"])[:OPERATORS]
    return found


def _our_step(device: str) -> Callable[[], None]:
    """Return an eager step with our layers and our memory. A captured step cannot be looked into."""
    from sitar.methods import build_method

    resolve_device(device)
    work = Work(PRESETS[device], IMAGE, 2048, device)
    data = work.data()
    torch.manual_seed(0)
    method: Any = build_method(work.config, data.task).to(device)
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-3, fused=True)
    batch = data.train.batch(torch.arange(work.config.train.batch_size))
    given = TrainBatch(batch.x.to(device), batch.y.to(device), batch.index.to(device))

    def step() -> None:
        optimiser.zero_grad()
        method.loss(given)["loss"].backward()
        optimiser.step()

    return step


def show(title: str, rows: list[dict[str, Any]]) -> None:
    columns = [name for name in rows[0] if name != "turns"]
    table = Table(*[name.replace("_", " ") for name in columns], title=title, title_justify="left")
    for row in rows:
        table.add_row(*[f"{row[name]:,}" if isinstance(row.get(name), int | float) else str(row.get(name, ""))
                        for name in columns])  # fmt: skip
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(PRESETS), default="cpu")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--steps", type=int, default=30, help="of a turn")
    parser.add_argument("--quick", action="store_true", help="two turns of three steps")
    parser.add_argument("--record", type=Path, help="write all that was measured into this file")
    given = parser.parse_args()
    turns, steps = (2, 3) if given.quick else (given.turns, given.steps)
    load = os.getloadavg()[0]
    found: dict[str, Any] = {
        "what": "Milliseconds of a training step, the best of all turns, by who trains. times_slower: than sitar in "
        "the same contest. Contestants take turns in one run. benchmarks/compare.py made it, and explains it.",
        "command": " ".join(["python benchmarks/compare.py", *(word for word in sys.argv[1:])]),
        "device": device_name(resolve_device(given.device)), "cores": os.cpu_count(), "torch": torch.__version__,
        "preset": PRESETS[given.device], "turns": turns, "steps": steps, "load_before": round(load, 1),
        **contests(given.device, turns, steps),
    }  # fmt: skip
    for title in CONTESTS:
        show(title, [{"": name, **row} for name, row in found[title].items()])
    found["start"] = start(given.device)
    show("start", [found["start"]])
    found["limit"] = limit(given.device, found["images"][SITAR]["milliseconds"])
    show("limit", [found["limit"]])
    found["costs"] = costs(given.device, turns, steps)
    for title, rows in found["costs"].items():
        show(f"cost against {title}", rows)
    found["operators"] = operators(given.device)
    for title, rows in found["operators"].items():
        show(f"operators of a step, layers of {title}", rows)
    found["load_after"] = round(os.getloadavg()[0], 1)
    if given.record:
        given.record.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
