"""Time a step of seeds that are trained together against single steps: `python benchmarks/seeds.py`.

The model and the loss are those of a preset, on random data of its shape. For each number of copies there is a step of
all of them together, in every way of `training/copies`, and as many single steps. All take turns, and the best turn of
each counts. On a CPU the step is eager and runs on one thread, and the time is that of the processor:
other programs do not count. On a GPU the step is captured, and the time is that of the clock.

    python benchmarks/seeds.py --record reproduce/records/seeds_cpu.json
    python benchmarks/seeds.py --device cuda --presets color_mnist/sitar --copies 1 4 16    # one minute on a GPU
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from contestants import Work

from sitar.devices import resolve_device
from sitar.methods import build_method
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.training.copies.trial import CannotStackError, build, ways
from sitar.training.environment import commit
from sitar.training.epoch_progress import ProgressBar
from sitar.training.loop import Loop, Turn, rehearsal
from sitar.training.seeding import INIT, seed_everything
from sitar.training.step import EagerStep
from sitar.training.tensor_float import allowed

SHAPES = {"demo": (3, 28, 28), "color_mnist": (3, 28, 28), "features": (512,)}
ROWS = 4096
TURNS = 5
SECONDS = 0.5  # of a turn


def loops(work: Work, copies: int, overrides: list[str]) -> list[Loop]:
    """Build the copies of a preset, as `sitar train --seeds` does."""
    made: list[Loop] = []
    data = work.data()
    for seed in range(copies):
        config = load_config(work.preset, overrides, seed)
        seed_everything(seed, INIT, 0)
        method = build_method(config, data.task)
        options = {"device": resolve_device(work.device), "shown": ProgressBar(False)}
        folder = RunFolder(Path(tempfile.mkdtemp()))
        made.append(Loop(method, data, config, folder=folder, **options, beside=made[0] if made else None))
    return made


def timed(step: EagerStep, turns: list[Turn], device: str) -> Callable[[], float]:
    """Return a function that runs steps for a while, and returns the milliseconds of one."""
    again = rehearsal(step, turns).step
    clock = time.process_time if device == "cpu" else time.perf_counter

    def turn() -> float:
        again()
        began, steps = clock(), 0
        while steps == 0 or clock() - began < SECONDS:
            for _ in range(1 if device == "cpu" else 20):
                again()
                steps += 1
            if device != "cpu":
                torch.cuda.synchronize()
        return 1000 * (clock() - began) / steps

    return turn


def measure(preset: str, copies: int, device: str, overrides: list[str]) -> dict[str, Any]:
    """Time single steps, and those of copies together."""
    work = Work(preset, SHAPES[preset.partition("/")[0]], ROWS, device, tuple(overrides))
    best: dict[str, float] = {}
    with ExitStack() as stack:
        alone = stack.enter_context(loops(work, 1, overrides)[0].first_turn())
        assert alone is not None
        contestants = {"single": timed(alone.loop.build_step(alone), [alone], device)}
        for way in ways(alone.loop) if copies > 1 else []:
            try:  # each has copies of its own: a captured step stays where its weights are
                own = [stack.enter_context(loop.first_turn()) for loop in loops(work, copies, overrides)]
                own = [turn for turn in own if turn is not None]
                contestants[way] = timed(build(own, way), own, device)
            except (CannotStackError, RuntimeError) as error:
                print(f"{preset}, {copies} copies, {way}: {error}", flush=True)
        for _ in range(TURNS):
            for name, turn in contestants.items():
                best[name] = min(best.get(name, float("inf")), turn())
    together = {way: taken for way, taken in best.items() if way != "single"}
    row = {"preset": preset, "copies": copies, "single": round(best["single"], 3)}
    row |= {way: round(taken, 3) for way, taken in together.items()}
    if together:
        row["gain"] = round(copies * best["single"] / min(together.values()), 2)
    print(
        f"{preset:22} {copies:3} copies: single {best['single']:8.3f} ms a step"
        + "".join(f"; {way} {taken / copies:8.3f} ms a copy" for way, taken in together.items())
        + (f"; gain {row['gain']:.2f}" if together else ""),
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--presets", nargs="+", default=["demo/sitar", "demo/erm", "features/sitar_best", "features/erm"]
    )
    parser.add_argument("--copies", nargs="+", type=int, default=[4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="settings for all")
    parser.add_argument("--record", type=Path, help="write what was measured into this file")
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows = []
    for preset in given.presets:
        with allowed(load_config(preset, given.overrides, 0).train.precision):
            rows += [measure(preset, copies, given.device, given.overrides) for copies in given.copies]
    if given.record:
        name = platform.processor() or platform.machine() if given.device == "cpu" else torch.cuda.get_device_name()
        about = {
            "what": "Milliseconds of a step: single, and of all copies together in each way; gain: copies * single / "
            "the best of them",
            "clock": "of the processor, one thread" if given.device == "cpu" else "wall clock, captured steps",
            "device": name, "commit": commit(), "torch": torch.__version__,
            "cores": os.cpu_count(), "load_before": round(load, 1),
            "settings": given.overrides,
        }  # fmt: skip
        given.record.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
