"""Time training side by side with what a user would write: `python benchmarks/compare.py [--record FILE]`.

It prints tables of milliseconds, ratios and samples a second, all measured in one run:

- images: a step of SITAR and of its control in sitar, of SITAR in an eager loop with a DataLoader and in the same loop
  without loading, and of pythae's beta-VAE on the same layers (`pip install --group benchmarks` has pythae);
- images of 64x64: SITAR in sitar, in the loop with a DataLoader, and without loading;
- images from the cache: epochs of sitar over images that are mapped from the cache, the loop with a DataLoader over the
  same file, and sitar on one batch that lies on the device. `--rows` and `--size` say how many images, and how large;
- features: a step of ERM in sitar and in an eager loop, and scikit-learn's logistic regression;
- start: the seconds until sitar is imported, and until a first step is done;
- the limit: the bytes and the operations of a step over what the device copies and multiplies in a second;
- cost: what a step, or an epoch over mapped images, takes when something is doubled. On a CPU this is the time of the
  processor on one thread, which other programs change less. Runs at once are timed by the clock;
- operators: where the time of a step goes, with torch's layers and with ours.

Contestants take turns, and the best turn of each counts (benchmarks/contestants.py). One whose package is missing is
left out, and the record says so. `--device cuda` runs the same on a GPU. `--only` measures some parts, and keeps the
rest of the record. `--quick` tries everything with few turns: its times say nothing.

    python benchmarks/compare.py --device cuda --only "images from the cache" --rows 200000 --size 64 --turns 3 \\
        --record FILE.json    # few turns: each is an epoch over all images
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from contestants import (
    Contestant,
    Turn,
    Work,
    arithmetic_rate,
    bandwidth,
    contest,
    data_loader,
    epochs,
    epochs_on_one_thread,
    features_loader,
    logistic_regression,
    make_cache,
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
from sitar.training.environment import commit

SITAR, LOADER, RESIDENT, PYTHAE = "sitar", "DataLoader loop", "loop without loading", "pythae beta-VAE"
CONTROL, LOGISTIC = "sitar, control", "logistic regression"
FED, CARD = "sitar, fed from the host", "sitar, one batch on the device"
IMAGE, WIDE, FEATURES = (3, 28, 28), (3, 64, 64), (512,)
ROWS, FEW_ROWS = 20_000, 1000
PRESETS = {"cpu": "demo/sitar", "cuda": "color_mnist/sitar"}
CONTESTS = ("images", "images of 64x64", "images from the cache", "features")
COSTS = ("latent size", "pixels", "batch", "runs at once", "rows of an epoch")
PARTS = (*CONTESTS, "start", "limit", *COSTS, "operators")
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


def entries(
    title: str, device: str, rows: int, size: int, cache: str
) -> dict[str, tuple[Callable[[Work], Turn], Work]]:
    """Return who takes part in a contest, by name."""
    preset, wide = PRESETS[device], (3, size, size)
    if title == "images":
        work = Work(preset, IMAGE, ROWS, device)
        control = Work(preset, IMAGE, ROWS, device, ("method.alpha=0", "method.lambda=0"))
        return {SITAR: (ours, work), CONTROL: (ours, control), RESIDENT: (on_device, work), LOADER: (data_loader, work),
                PYTHAE: (pythae, work)}  # fmt: skip
    if title == "images of 64x64":
        work = Work(preset, WIDE, min(rows, ROWS), device)
        return {SITAR: (ours, work), RESIDENT: (on_device, work), LOADER: (data_loader, work)}
    if title == "images from the cache":
        make_cache(Path(cache), rows, wide)
        work = Work(preset, wide, rows, device, cache=cache)
        fed = {FED: (epochs, replace(work, settings=("train.data_on=host",)))} if device == "cuda" else {}
        return {SITAR: (epochs, work), **fed, CARD: (ours, Work(preset, wide, FEW_ROWS, device)),
                LOADER: (data_loader, work)}  # fmt: skip
    work = Work("npz/erm", FEATURES, ROWS, device, ("data.file=none",))
    return {SITAR: (ours, work), LOADER: (features_loader, work), LOGISTIC: (logistic_regression, work)}


def take_part(
    title: str, device: str, turns: int, steps: int, rows: int, size: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Let the contestants take turns. Return the milliseconds of a step, samples a second, and how much slower.

    The second value says who was left out, and why.
    """
    with tempfile.TemporaryDirectory() as folder:
        everyone = entries(title, device, rows, size, folder)
        with contest(everyone) as started:
            take_turns(started, turns, steps * LONGER.get(title, 1))
            batch = next(iter(started.values())).work.config.train.batch_size
            quickest = started[SITAR].best
            found: dict[str, Any] = {
                name: {
                    "milliseconds": round(one.best, 3),
                    "samples_per_second": round(1000 * batch / one.best),
                    "times_slower": round(one.best / quickest, 2),
                    "processor_milliseconds": round(min(one.processor_milliseconds), 3),
                    "turns": [round(taken, 3) for taken in one.milliseconds],
                }
                for name, one in started.items()
            }
            missing = {name: f"{name} is not installed" for name in everyone.keys() - started.keys()}
            return found, missing


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


def costs(title: str, device: str, turns: int, steps: int) -> list[dict[str, float]]:
    """Return what a step takes when the latent, the image or the batch is doubled, and what several runs at once take.

    An image is doubled in its pixels. Rows are those of an epoch, every one of which is gathered.
    """
    preset = PRESETS[device]

    def work(*settings: str, shape: tuple[int, ...] = IMAGE, rows: int = 4096) -> Work:
        return Work(preset, shape, rows, device, settings)

    if title == "runs at once":
        return _runs_at_once(work(), turns, steps)
    if title == "rows of an epoch":
        return _rows_of_an_epoch(work(), turns, steps)
    works = {
        "latent size": {n: work(f"model.latent_dim={n}") for n in (10, 20, 40, 80)},
        "pixels": {h * w: work(shape=(3, h, w)) for h, w in ((28, 28), (28, 56), (56, 56), (56, 112))},
        "batch": {n: work(f"train.batch_size={n}") for n in (64, 128, 256, 512, 1024)},
    }[title]
    clock = time.process_time if device == "cpu" else time.perf_counter
    prepared: dict[int, Turn] = {value: ours(one, threads=1) for value, one in works.items()}
    taken: dict[int, list[float]] = {value: [] for value in works}
    for _ in range(turns):
        for value, turn in prepared.items():
            turn(1)  # another contestant had the caches
            began = clock()
            turn(steps)
            taken[value].append(1000 * (clock() - began) / steps)
    return _doubled({value: min(all_turns) for value, all_turns in taken.items()})


def _runs_at_once(work: Work, turns: int, steps: int) -> list[dict[str, float]]:
    """Time several runs side by side, each on one thread, as the engine of sweeps has them."""
    with contest({str(run): (one_thread, work) for run in range(4)}) as started:
        runs = list(started.values())
        together: dict[int, list[float]] = {1: [], 2: [], 4: []}
        for _ in range(turns):
            for number, all_turns in together.items():
                for one in runs[:number]:
                    one.begin(steps)
                all_turns.append(max([one.end() for one in runs[:number]]))
    return _doubled({number: min(all_turns) for number, all_turns in together.items()})


def _rows_of_an_epoch(work: Work, turns: int, steps: int) -> list[dict[str, float]]:
    """Time epochs over images that are mapped from a cache, one of each size."""
    sizes = (512, 1024) if steps < 10 else (5000, 10000, 20000)
    with tempfile.TemporaryDirectory() as folder:
        own = {rows: Path(folder, str(rows)) for rows in sizes}
        for rows, place in own.items():
            place.mkdir()
            make_cache(place, rows, work.shape)
        asked = {
            str(rows): (epochs_on_one_thread, replace(work, rows=rows, cache=str(place))) for rows, place in own.items()
        }
        with contest(asked) as started:
            take_turns(started, max(1, turns // 3), steps)
            return _doubled({int(rows): _epoch_of(one) for rows, one in started.items()})


def _epoch_of(one: Contestant) -> float:
    """Return the milliseconds of the best epoch, of the processor where that is what computes."""
    taken = one.processor_milliseconds if one.work.device == "cpu" else one.milliseconds
    return min(taken) * one.steps


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
    columns = [name for name in rows[-1] if name != "turns"]
    table = Table(*[name.replace("_", " ") for name in columns], title=title, title_justify="left")
    for row in rows:
        table.add_row(*[f"{row[name]:,}" if isinstance(row.get(name), int | float) else str(row.get(name, ""))
                        for name in columns])  # fmt: skip
    Console(width=110).print(table)


def measure(part: str, found: dict[str, Any], given: argparse.Namespace) -> None:
    """Measure a part, add it to what was found, and show it."""
    turns, steps = (2, 3) if given.quick else (given.turns, given.steps)
    device = given.device
    if part in CONTESTS:
        found[part], missing = take_part(part, device, turns, steps, given.rows, given.size)
        if missing:
            found.setdefault("left_out", {}).update(missing)
        show(part, [{"": name, **row} for name, row in found[part].items()])
    elif part in COSTS:
        found.setdefault("costs", {})[part] = costs(part, device, turns, steps)
        show(f"cost against {part}", found["costs"][part])
    elif part == "operators":
        found[part] = operators(device)
        for title, rows in found[part].items():
            show(f"operators of a step, layers of {title}", rows)
    else:
        found[part] = start(device) if part == "start" else limit(device, found["images"][SITAR]["milliseconds"])
        show(part, [found[part]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(PRESETS), default="cpu")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--steps", type=int, default=30, help="of a turn")
    parser.add_argument("--quick", action="store_true", help="two turns of three steps")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=10_000, help="images in the cache")
    parser.add_argument("--size", type=int, default=64, help="their height and width")
    parser.add_argument("--record", type=Path, help="write all that was measured into this file, part by part")
    given = parser.parse_args()
    kept = given.record is not None and given.record.exists() and given.only != list(PARTS)
    found: dict[str, Any] = json.loads(given.record.read_text(encoding="utf-8")) if kept else {
        "what": "Milliseconds of a training step, the best of all turns, by who trains. times_slower: than sitar in "
        "the same contest. Contestants take turns in one run. benchmarks/compare.py made it, and explains it.",
        "device": device_name(resolve_device(given.device)), "cores": os.cpu_count(), "torch": torch.__version__,
        "preset": PRESETS[given.device],
    }  # fmt: skip
    for part in given.only:
        load = os.getloadavg()[0]
        measure(part, found, given)
        found.setdefault("made", {})[part] = {
            "commit": commit(), "command": shlex.join(["python", "benchmarks/compare.py", *sys.argv[1:]]),
            "load_before": round(load, 1), "load_after": round(os.getloadavg()[0], 1),
        }  # fmt: skip
        if given.record:
            given.record.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
