"""Time whole runs, each in a process of its own, from the start of Python to its end: `python benchmarks/whole_run.py`.

Every combination of the given seeds, batches, compilations, precisions and ways to stack is one process. Seeds such as
`0-15` are trained by `train_seeds`, a single one by `train`. Parts that are told apart, each without those within it:

- import: until torch and sitar are there, and device: until a tensor lies on it;
- data: loading, and model: until it lies on the device with its data;
- capture: a step is built, captured, compiled in its first call, or compared with single ones (`trial.py`);
- training: the steps. Where seeds are stacked in a way that this script does not know, they count as rest;
- evaluation: after every epoch, and of the finished model;
- writing: checkpoints, predictions and the result;
- rest: all else until the process ends.

The record is written after each process. One that fails leaves its error there.

    python benchmarks/whole_run.py --seeds 0 0-15 --batch 64 512 --compile false true --precision float32 tf32 \\
        --stack auto never --device cuda --record reproduce/records/whole_run.json    # a GPU: under 5 s, under 20 s?
    python benchmarks/whole_run.py --preset demo/sitar --epochs 1 --device cpu
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch

import sitar.training.run as one
from sitar.devices import device_name, resolve_device
from sitar.registry import DATASETS, METHODS
from sitar.run_folder import RunFolder
from sitar.training.copies import lockstep
from sitar.training.copies import seeds as several
from sitar.training.copies.trial import Stacking
from sitar.training.environment import commit
from sitar.training.loop import Loop
from sitar.training.step import EagerStep

RESULT = "RESULT "


class Clock:
    """Adds up the seconds of each part. A part within another one is not counted there."""

    def __init__(self, synchronise: Callable[[], None]) -> None:
        self.synchronise = synchronise
        self.seconds: dict[str, float] = {}
        self.running: list[str] = ["rest"]
        self.since = time.perf_counter()

    def _switch(self) -> None:
        self.synchronise()
        now = time.perf_counter()
        part = self.running[-1]
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self.since
        self.since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._switch()
        self.running.append(name)
        try:
            yield
        finally:
            self._switch()
            self.running.pop()

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Count every call of a function as a part. A name that an owner does not have is left out."""
        function = getattr(owner, name, None)
        if function is None:
            return

        def watched(*given: Any, **named: Any) -> Any:
            with self.part(part):
                return function(*given, **named)

        setattr(owner, name, watched)

    def watch_first_calls(self, owner: Any, part: str) -> None:
        """Count the first call of each object, in which torch compiles."""
        function = owner.__call__

        def watched(this: Any, *given: Any) -> None:
            if hasattr(this, "was_called"):
                function(this, *given)
                return
            this.was_called = True
            with self.part(part):
                function(this, *given)

        owner.__call__ = watched


def child(given: argparse.Namespace) -> dict[str, Any]:
    """Make one run, or the runs of several seeds, in this process. Return the seconds of each part, and accuracies."""
    for registry in (METHODS, DATASETS):
        registry.names()  # which imports them
    imported = time.time() - given.began
    began = time.perf_counter()
    device = resolve_device(given.device)
    torch.ones(1, device=device).add(1)
    on_gpu = device.type == "cuda"
    clock = Clock(torch.cuda.synchronize if on_gpu else lambda: None)
    started = time.perf_counter() - began
    for owner, name, part in (
        (one, "load", "data"), (several, "load", "data"),
        (one.Making, "__init__", "model"),
        (Loop, "build_step", "capture"), (lockstep.Lockstep, "_step_of", "capture"), (several, "choose_way", "capture"),
        (Loop, "_epoch", "training"), (lockstep.Lockstep, "_take_together", "training"),
        (Loop, "_evaluate", "evaluation"), (one, "evaluate_method", "evaluation"),
        (Loop, "_save", "writing"), (one, "finish", "writing"),
    ):  # fmt: skip
        clock.watch(owner, name, part)
    if "train.compile=true" in given.settings:
        clock.watch_first_calls(EagerStep, "capture")
    numbers = seeds_of(given.seeds[0])
    with tempfile.TemporaryDirectory() as place:
        options: dict[str, Any] = {"overrides": given.settings, "device": given.device, "progress": False}
        if len(numbers) == 1:
            folders = [one.train(given.preset, seed=numbers[0], out=Path(place, "run"), **options)]
        else:
            trained = several.train_seeds(given.preset, numbers, out=place, stack=given.stack[0], **options)
            for single in trained:
                if single.error is not None:
                    raise single.error
            folders = [single.folder for single in trained]
        with clock.part("rest"):
            pass
        results = [RunFolder(folder.path).result() for folder in folders]
        environments = [RunFolder(folder.path).environment() or {} for folder in folders]
    accuracies = {
        split: round(sum(result["splits"][split]["average"] or 0.0 for result in results) / len(results), 4)
        for split in ("id_test", "ood_test")
        if split in results[0]["splits"]
    }
    parts = {"import": imported, "device": started, **clock.seconds}
    return {
        "device": device_name(device), "torch": torch.__version__, "commit": commit(),
        "parts": {name: round(seconds, 3) for name, seconds in parts.items()},
        "together": max(environment.get("together", 1) for environment in environments),
        "accuracies": accuracies,
    }  # fmt: skip


def seeds_of(words: str) -> list[int]:
    """Return the seeds of a word such as 3 or 0-15."""
    first, _, last = words.partition("-")
    return list(range(int(first), int(last or first) + 1))


def measure(preset: str, seeds: str, stack: str, settings: list[str], device: str) -> dict[str, Any]:
    """Start a process that makes the runs, and return its seconds, or its error."""
    words = ["--preset", preset, "--seeds", seeds, "--stack", stack, "--device", device]
    words += [word for setting in settings for word in ("--set", setting)]
    load, began = os.getloadavg()[0], time.time()
    done = subprocess.run(
        [sys.executable, __file__, "--began", str(began), *words], capture_output=True, text=True, check=False
    )
    total = time.time() - began
    row = {"seconds": round(total, 2), "load_before": round(load, 1)}
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode or not last.startswith(RESULT):
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {**row, "error": said[:300]}
    found = json.loads(last.removeprefix(RESULT))
    parts = found["parts"]
    parts["rest"] = round(total - sum(taken for name, taken in parts.items() if name != "rest"), 3)
    return {**row, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="color_mnist/sitar")
    parser.add_argument("--seeds", nargs="+", default=["0"], help="such as 0, or 0-15 for sixteen at once")
    parser.add_argument(
        "--stack", nargs="+", default=["auto"], choices=get_args(Stacking), help="how several seeds are trained"
    )
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--batch", nargs="+", type=int, help="train.batch_size (default: the preset's)")
    parser.add_argument("--compile", nargs="+", default=["false"], choices=["false", "true"])
    parser.add_argument("--precision", nargs="+", default=["float32"])
    parser.add_argument("--set", dest="settings", action="append", default=[], help="for all runs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", type=Path, help="write what was measured into this file, run by run")
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.began is not None:
        print(RESULT + json.dumps(child(given)), flush=True)
        return
    rows: list[dict[str, Any]] = []
    about = {
        "what": "Seconds of whole runs, each in a process of its own, and of their parts. benchmarks/whole_run.py made "
        "it, and explains it.",
        "preset": given.preset, "epochs": given.epochs, "cores": os.cpu_count(),
    }  # fmt: skip
    for seeds, batch, compiled, precision in product(
        given.seeds, given.batch or [None], given.compile, given.precision
    ):
        settings = [f"train.epochs={given.epochs}", "train.evaluate_every=1", f"train.compile={compiled}"]
        settings += [f"train.precision={precision}", *([f"train.batch_size={batch}"] if batch else []), *given.settings]
        for stack in given.stack if len(seeds_of(seeds)) > 1 else given.stack[:1]:
            asked = {"seeds": seeds, "batch": batch, "compile": compiled, "precision": precision}
            how = {"stack": stack} if len(seeds_of(seeds)) > 1 else {}
            rows.append({**asked, **how, **measure(given.preset, seeds, stack, settings, given.device)})
            print(json.dumps(rows[-1]), flush=True)
            if given.record:
                given.record.write_text(json.dumps({**about, "runs": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
