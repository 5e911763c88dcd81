"""Choose the CPU threads of a run: the user's own number, that of the run which it continues, or the fastest.

torch splits every operation over all cores, and the threads wait for each other at its end. A small network gains
nothing from that. Where other programs use the cores too, one thread that waits for its turn stops all others: a step
can take fifty times as long as on one thread. So a run times a few steps before it starts.

A user's own setting wins. Two things count as one: OMP_NUM_THREADS or MKL_NUM_THREADS in the environment, and a call of
`torch.set_num_threads` with a number that torch does not take by itself.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

logger = logging.getLogger(__name__)
SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
GAIN = 0.9  # of the time of fewer threads: more of them must save a tenth
WINDOW_SECONDS = 0.25  # for each number; long enough for the system to give the cores to others and back
LONG_SECONDS = 2.0  # of a step, of which one is enough to judge by
ENOUGH_SECONDS = 5.0  # after which nothing is timed any more, but for one thread and torch's own number
SHARE = 0.1  # of the steps of the phase, the most that are tried with each number


class Rehearsal(NamedTuple):
    """A rehearsal lends a step that can be tried out, and says how many steps its phase has."""

    step: Callable[[], None]
    steps: int


@contextmanager
def cpu_threads(
    rehearse: Callable[[], AbstractContextManager[Rehearsal | None]], recorded: int | None
) -> Iterator[None]:
    """Have torch use the number of threads that is right for a run, and put the caller's number back afterwards.

    `rehearse` lends a step of the run to try out, or None where the run has none. `recorded` is the number of threads
    of a run that is continued: with another number its weights could differ in the last digits. A new run has None.
    """
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(_number(rehearse, recorded))
        yield
    finally:
        torch.set_num_threads(before)


def _number(rehearse: Callable[[], AbstractContextManager[Rehearsal | None]], recorded: int | None) -> int:
    most, number = torch.get_num_threads(), users_number()
    if number is None and recorded is not None and recorded <= most:
        return recorded
    if number is None:
        with rehearse() as rehearsal:
            number = most if rehearsal is None else fastest(most, rehearsal)
    if recorded is not None and number != recorded:
        logger.warning(
            "The run was started on %d threads and continues on %d, so its weights may differ in the last digits from "
            "those of a run that was never stopped. OMP_NUM_THREADS=%d continues it exactly.",
            recorded, number, recorded,
        )  # fmt: skip
    return number


def users_number() -> int | None:
    """Return the number of threads that the user has set, or None where torch has taken its own."""
    number = torch.get_num_threads()
    is_set = any(os.environ.get(name) for name in SETTINGS)
    return number if is_set or number not in torchs_numbers() else None


def torchs_numbers() -> set[int]:
    """Return the numbers that torch takes by itself. It depends on how torch was built: cores, or hardware threads."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    try:
        cores = len({Path(SIBLINGS.format(cpu)).read_text() for cpu in cpus})
    except OSError:  # not Linux
        cores = len(cpus) // 2
    return {len(cpus), cores}


def fastest(most: int, rehearsal: Rehearsal, clock: Callable[[], float] = time.perf_counter) -> int:
    """Return the number of threads, from 1 to `most`, with which a step takes the least time.

    Where more threads seem faster, one thread is timed again, and its better time counts. Another program may have had
    the core the first time, and a run must not be slower than on one thread.
    """
    if most == 1:
        return 1
    began = clock()
    seconds: dict[int, float] = {}
    for threads in candidates(most):
        if len(seconds) < 2 or clock() - began < ENOUGH_SECONDS:
            seconds[threads] = seconds_of_a_step(threads, rehearsal, clock)
    if choose(seconds) > 1 and clock() - began < ENOUGH_SECONDS:
        seconds[1] = min(seconds[1], seconds_of_a_step(1, rehearsal, clock))
    logger.debug("Seconds of a step by the number of threads: %s", seconds)
    return choose(seconds)


def candidates(most: int) -> list[int]:
    """Return the numbers to try: one and `most` first, which must be timed, then the powers of two between."""
    return [1, most, *(2**power for power in reversed(range(1, most.bit_length())) if 2**power < most)]


def choose(seconds: Mapping[int, float]) -> int:
    """Return the fewest threads that take hardly longer than the fastest number of threads."""
    limit = min(seconds.values()) / GAIN
    return min(threads for threads, taken in seconds.items() if taken <= limit)


def seconds_of_a_step(threads: int, rehearsal: Rehearsal, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the mean over a short while. Waits for a core are rare and long, so that a median would not see them."""
    torch.set_num_threads(threads)
    began = clock()
    rehearsal.step()  # which starts the threads, and does what is done only once
    if (first := clock() - began) >= LONG_SECONDS:
        return first
    began, steps, spent = clock(), 0, 0.0
    while steps == 0 or (spent < WINDOW_SECONDS and steps < SHARE * rehearsal.steps):
        rehearsal.step()
        steps, spent = steps + 1, clock() - began
    return spent / steps
