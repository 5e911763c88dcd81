"""Time what might make a step of a large batch cheaper on a CPU: `python benchmarks/large_batch.py [--record FILE]`.

A batch of 1,024 costs more than twice one of 512, because its activations no longer fit into the caches of a processor.
The ways of one batch take turns, on one thread but for the last. Times are those of the processor, so that other
programs change them little; two threads are timed by the clock as well. `page_faults` are those of a step: a step whose
memory is new has many.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from contestants import Work, loop_of
from seeds import SHAPES
from torch import Tensor

from sitar.data.types import TrainBatch
from sitar.training.environment import commit
from sitar.training.loop import Turn, rehearsal
from sitar.training.step import EagerStep

SECONDS = 0.7  # of a turn
PART = 256  # samples


class Halves(EagerStep):
    """Adds the gradients of two halves of a batch. Correlations and swaps are then those of a half: another method."""

    def _run_objectives(self) -> None:
        batch = self._next_batch()
        half = len(batch.y) // 2
        for objective, optimiser in zip(self.objectives, self.optimisers, strict=True):
            optimiser.zero_grad(set_to_none=True)
            for part in (slice(None, half), slice(half, None)):
                own = TrainBatch(batch.x[part], batch.y[part], batch.index[part])
                (objective.loss(own)["loss"] / 2).backward()
            optimiser.step()


def halves(turn: Turn) -> EagerStep:
    plan, loop = turn.plan, turn.loop
    sizes = {"batch_size": plan.batch_size, "steps": plan.steps, "device": loop.device, "config": loop.config.train}
    return Halves(plan.phase.objectives, turn.optimisers, loop.train, **sizes)


def channels_last(turn: Turn) -> EagerStep:
    turn.loop.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return turn.loop.build_step(turn)


def in_parts(turn: Turn) -> EagerStep:
    """Let the convolutions see some samples at a time. The gradients are the same, up to the order of sums."""
    vae: Any = turn.loop.method.vae
    for network in (vae.encoder, vae.decoder):
        network.forward = partial(_by_parts, network.forward)
    return turn.loop.build_step(turn)


def _by_parts(forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.cat([forward(part) for part in x.split(PART)])


def as_it_is(turn: Turn) -> EagerStep:
    return turn.loop.build_step(turn)


WAYS: dict[str, tuple[Callable[[Turn], EagerStep], int]] = {
    "as it is": (as_it_is, 1),
    "channels-last": (channels_last, 1),
    "convolutions in parts": (in_parts, 1),
    "two halves": (halves, 1),
    "compiled": (as_it_is, 1),
    "two threads": (as_it_is, 2),
}


class Way:
    """One way to take a step, with all that was measured of it."""

    def __init__(self, work: Work, name: str) -> None:
        build, self.threads = WAYS[name]
        settings = ("train.compile=true",) if name == "compiled" else ()
        self.batch, self.name = work.config.train.batch_size, name
        self.lent = loop_of(replace(work, settings=(*work.settings, *settings))).first_turn()
        begun = self.lent.__enter__()
        assert begun is not None
        self.again = rehearsal(build(begun), [begun]).step
        self.processor: list[float] = []
        self.clock: list[float] = []
        self.faults: list[float] = []
        self.turn(), self.turn()
        self.processor, self.clock, self.faults = [], [], []

    def turn(self) -> None:
        torch.set_num_threads(self.threads)
        self.again()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        began, clock, steps = time.process_time(), time.perf_counter(), 0
        while steps == 0 or time.process_time() - began < SECONDS:
            self.again()
            steps += 1
        self.processor.append(1000 * (time.process_time() - began) / steps)
        self.clock.append(1000 * (time.perf_counter() - clock) / steps)
        self.faults.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / steps)

    def row(self) -> dict[str, Any]:
        by_clock = {"clock_milliseconds": round(min(self.clock), 2)} if self.threads > 1 else {}
        return {
            "batch": self.batch, "way": self.name, "milliseconds": round(min(self.processor), 2), **by_clock,
            "page_faults": round(min(self.faults)), "turns": [round(one, 2) for one in self.processor],
        }  # fmt: skip


def in_pairs(row: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Compare two ways turn by turn: the machine is as busy for both."""
    ratios = [one / two for one, two in zip(row["turns"], other["turns"], strict=True)]
    return {"median": round(median(ratios), 2), "least": round(min(ratios), 2), "most": round(max(ratios), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="demo/sitar")
    parser.add_argument("--batches", nargs="+", type=int, default=[512, 1024])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--record", type=Path, help="write what was measured into this file")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    shape = SHAPES[given.preset.partition("/")[0]]
    ways = [
        Way(Work(given.preset, shape, 4096, "cpu", (f"train.batch_size={batch}",)), name)
        for batch in given.batches
        for name in given.ways
    ]
    for _ in range(given.turns):
        for way in ways:
            way.turn()
    rows = [way.row() for way in ways]
    base = {row["way"]: row for row in rows if row["batch"] == given.batches[0]}
    for row in rows:
        row["times"] = in_pairs(row, base[row["way"]])
        row["times_as_it_is"] = in_pairs(row, base.get("as it is", base[row["way"]]))
        print(json.dumps(row), flush=True)
    record = {
        "what": "Processor milliseconds of a step, the best of all turns, by batch and by how it is computed. times: "
        "of the smallest batch in the same way, and times_as_it_is: of the smallest batch as it is; the median, the "
        "least and the most of the ratios in each turn. benchmarks/large_batch.py made it.",
        "preset": given.preset, "cores": os.cpu_count(), "torch": torch.__version__, "commit": commit(),
        "load_before": round(load, 1), "load_after": round(os.getloadavg()[0], 1), "rows": rows,
    }  # fmt: skip
    if given.record:
        given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
