"""Choose how many CPU threads work takes: the user's own number, or the fastest.

torch splits every operation over all cores, and the threads wait for each other at its end. A small network gains
nothing from that. Where other programs use the cores too, one thread that waits for its turn stops all others: a step
can take fifty times as long as on one thread. So a few steps are timed before the work starts. Work that one thread
does in seconds is left to it: the time of trying more would not come back.

A user's own setting wins. Two things count as one: OMP_NUM_THREADS or MKL_NUM_THREADS in the environment, and a call of
`torch.set_num_threads` with a number that torch does not take by itself.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

logger = logging.getLogger(__name__)
SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
GAIN = 0.9  # of the time of fewer threads: more of them must save a tenth
WINDOW_SECONDS = 0.25  # for each number; long enough for the system to give the cores to others and back
WORTH_SECONDS = 15.0  # of all steps on one thread: less is not worth the time of trying more threads
LONG_SECONDS = 2.0  # of a step, of which one is enough to judge by
ENOUGH_SECONDS = 5.0  # after which nothing is timed any more, but for one thread and torch's own number
SHARE = 0.1  # of the steps of the phase, the most that are tried with each number


class Rehearsal(NamedTuple):
    """A rehearsal lends a step that can be tried out, and says how many steps the work has."""

    step: Callable[[], object]
    steps: int


def number_for(rehearsal: Rehearsal | None) -> int:
    """Return the user's own number of threads, or the fastest. Without a rehearsal it is torch's own."""
    number, most = users_number(), torch.get_num_threads()
    return number or (most if rehearsal is None else fastest(most, rehearsal))


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Have torch use this number of threads, and put the caller's number back afterwards."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)


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
    seconds = {1: seconds_of_a_step(1, rehearsal, clock, enough=WORTH_SECONDS)}
    if seconds[1] * rehearsal.steps < WORTH_SECONDS:
        return 1
    for number in candidates(most):
        if len(seconds) < 2 or clock() - began < ENOUGH_SECONDS:
            seconds[number] = seconds_of_a_step(number, rehearsal, clock)
    if choose(seconds) > 1 and clock() - began < ENOUGH_SECONDS:
        seconds[1] = min(seconds[1], seconds_of_a_step(1, rehearsal, clock))
    logger.debug("Seconds of a step by the number of threads: %s", seconds)
    return choose(seconds)


def candidates(most: int) -> list[int]:
    """Return the numbers to try besides one: `most` first, which must be timed, then the powers of two between."""
    return [most, *(2**power for power in reversed(range(1, most.bit_length())) if 2**power < most)]


def choose(seconds: Mapping[int, float]) -> int:
    """Return the fewest threads that take hardly longer than the fastest number of threads."""
    limit = min(seconds.values()) / GAIN
    return min(number for number, taken in seconds.items() if taken <= limit)


def seconds_of_a_step(
    number: int, rehearsal: Rehearsal, clock: Callable[[], float] = time.perf_counter, *, enough: float = 0.0
) -> float:
    """Return the mean over a short while. Waits for a core are rare and long, so that a median would not see them.

    One step tells it where all of them together take less than `enough` seconds.
    """
    torch.set_num_threads(number)
    began = clock()
    rehearsal.step()  # which starts the threads, and does what is done only once
    if (first := clock() - began) >= LONG_SECONDS:
        return first
    began, steps, spent = clock(), 0, 0.0
    while steps == 0 or (spent < WINDOW_SECONDS and steps < SHARE * rehearsal.steps):
        rehearsal.step()
        steps, spent = steps + 1, clock() - began
        if spent / steps * rehearsal.steps < enough:
            break
    return spent / steps
