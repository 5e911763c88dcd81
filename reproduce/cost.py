"""What do methods cost? `python reproduce/cost.py --device cuda` measures, and writes the record and the page.

Operations are counted by torch in one step and in one scoring. Seconds are those of short runs on this device. The
record is reproduce/records/cost.json, and the page docs/results/cost.md. `--table` makes only the page.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import sitar
from sitar.data import load_data
from sitar.data.types import Data
from sitar.devices import resolve_device
from sitar.files import write_atomic
from sitar.methods import GradientPhase, Method, build_method, data_for
from sitar.methods.base import Loss
from sitar.presets import load_config
from sitar.training.environment import describe_environment
from sitar.training.plan import plan_phase

HERE = Path(__file__).parent
RECORD = HERE / "records" / "cost.json"
PAGE = HERE.parent / "docs" / "results" / "cost.md"
PRESETS = ("color_mnist/sitar", "color_mnist/control", "color_mnist/erm", "color_mnist/diffusion")
IMAGES = 1000  # that are scored
REPEATS = 5
TEXT = """\
# What the methods cost

The paper calls class-conditional diffusion models computationally expensive. This page measures what
[SITAR](../methods/sitar.md), its [control](../glossary.md#control), [ERM](../methods/erm.md) and the
[diffusion classifier](../methods/diffusion.md) cost on ColorMNIST, with the settings of their presets.

- *FLOPs* are the operations of matrix products and convolutions, as torch counts them. A multiplication with its
  addition counts as two. A step is forward and backward, without the optimiser.
- *Seconds of training* are extrapolated: the median epoch, times the epochs of the preset. Each run had {epochs}
  epochs, and the first does not count. Nothing is evaluated meanwhile.
- *Seconds of scoring* are the median of {repeats} times, after one that does not count.

The batches are those of the presets, and they differ. A GPU is not busy with a small batch. So the seconds follow the
number of steps more than the FLOPs. SITAR and its control take many small steps, ERM and the diffusion classifier few
large ones. Seconds of training say what these presets take on this device, and not what a method costs.

The claim would be wrong if SITAR needed as much as the diffusion classifier, in training or in scoring. One diffusion
model serves all classes here. The paper speaks of a model for each class, which costs more.

`python reproduce/cost.py` makes this page from `reproduce/records/cost.json`.
It was measured with: {where}.{settings}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=5, help="epochs that are timed; the first is not counted")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of all runs")
    parser.add_argument("--table", action="store_true", help="make the page from the record")
    options = parser.parse_args()
    if not options.table:
        record = measure_all(options.device, options.epochs, options.set)
        write_atomic(RECORD, (json.dumps(record, indent=2) + "\n").encode())
    write_atomic(PAGE, render(json.loads(RECORD.read_text(encoding="utf-8"))).encode())


def measure_all(device: str, epochs: int, settings: list[str]) -> dict[str, Any]:
    """Measure every preset, one after the other, so that none disturbs another."""
    if epochs < 2:
        raise SystemExit("--epochs must be at least 2, because the first epoch is not counted.")
    rows = {}
    for preset in PRESETS:
        rows[preset] = measure(preset, resolve_device(device), epochs, settings)
        print(preset, json.dumps(rows[preset]), flush=True)
    environment = describe_environment(resolve_device(device))
    return {"environment": environment, "images": IMAGES, "settings": settings, "rows": rows}


def measure(preset: str, device: torch.device, epochs: int, settings: list[str]) -> dict[str, Any]:
    """Count the operations of a preset, and time a short run of it without evaluation."""
    config = load_config(preset, settings)
    data = data_for(config, load_data(config.data))
    method = build_method(config, data.task).to(device)
    short = [*settings, f"train.epochs={epochs}", "train.evaluate=[]", "train.selection=last"]
    with tempfile.TemporaryDirectory() as folder:
        run = sitar.train(preset, overrides=short, out=Path(folder, "run"), device=device.type, progress=False)
        seconds = [line["seconds"] for line in run.metrics()]
        trained = sitar.load(run, device=device.type)
        x = next(iter(trained.data.evaluation.values())).x[:IMAGES]
        scoring = timed(lambda: trained.logits(x))
    return {
        "parameters": sum(parameter.numel() for parameter in method.parameters()),
        "batch_size": config.train.batch_size,
        "epochs": config.train.epochs,
        "epochs_timed": epochs,
        "seconds_of_an_epoch": round(median(seconds[1:]), 4),  # the first one starts the device
        "seconds_of_scoring": round(scoring, 4),
        "images_scored": len(x),
        **operations(method, data, config, device),
    }


def operations(method: Method, data: Data, config: Any, device: torch.device) -> dict[str, int]:
    """Count the operations of a training step, of the whole training, and of scoring one image."""
    split, step, total = data.train.to(device), 0, 0
    method.train()
    for number, phase in enumerate(method.phases()):
        if not isinstance(phase, GradientPhase):
            raise SystemExit("Only methods without a fit can be counted here.")
        plan = plan_phase(phase, number, len(split), config)
        batch = split.batch(plan.order(0)[0].to(device))
        step = sum(flops(backward, objective.loss, batch) for objective in phase.objectives)
        total += step * plan.steps * plan.epochs
    method.eval()
    images = split.batch(torch.arange(16, device=device)).x
    with torch.no_grad():
        scoring = flops(method.logits, images) // len(images)
    return {"flops_of_a_step": step, "flops_of_training": total, "flops_of_scoring": scoring}


def backward(loss: Loss, batch: Any) -> None:
    loss(batch)["loss"].backward()


def flops(call: Callable[..., object], *inputs: Any) -> int:
    """Count the operations of matrix products and convolutions. A multiplication with its addition counts as two."""
    with FlopCounterMode(display=False) as counter:
        call(*inputs)
    return counter.get_total_flops()


def timed(call: Callable[[], object]) -> float:
    """Return the median seconds of a call, after one that is not counted. Logits come back to the CPU, so it waits."""
    call()
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def render(record: dict[str, Any]) -> str:
    """Write the page, from the record alone."""
    rows, images = record["rows"], record["images"]
    for row in rows.values():
        row["training"] = row["seconds_of_an_epoch"] * row["epochs"]
        row["scoring"] = row["seconds_of_scoring"] * images / row["images_scored"]
    environment = record["environment"]
    device, commit = environment["device"], str(environment["commit"])[:12]
    where = f"{device}, torch {environment['versions']['torch']}, commit {commit}"
    epochs = ", ".join(sorted({str(row["epochs_timed"]) for row in rows.values()}))
    settings = f" All runs had these settings too: {', '.join(record['settings'])}." if record["settings"] else ""
    head = ["parameters", "batch", "steps", "FLOPs of a step", "FLOPs of training", "seconds of training"]
    text = TEXT.format(epochs=epochs, repeats=REPEATS, where=where, settings=settings)
    head += ["FLOPs of scoring an image", f"seconds of scoring {images:,} images"]
    lines = [f"| | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for name, row in rows.items():
        training = f"{row['flops_of_a_step']:.2e} | {row['flops_of_training']:.2e} | {row['training']:.1f}"
        scoring = f"{row['flops_of_scoring']:.2e} | {row['scoring']:.3f}"
        size = f"{row['parameters']:,} | {row['batch_size']} | {row['flops_of_training'] // row['flops_of_a_step']:,}"
        lines.append(f"| {name} | {size} | {training} | {scoring} |")
    lines += ["", "The next table divides by what SITAR needs.", ""]
    lines += [
        "| | FLOPs of training | seconds of training | FLOPs of scoring | seconds of scoring |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        keys = ("flops_of_training", "training", "flops_of_scoring", "scoring")
        cells = [f"{row[key] / rows['color_mnist/sitar'][key]:.2f}" for key in keys]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([text, *lines, ""])


if __name__ == "__main__":
    main()
