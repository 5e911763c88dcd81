"""The number of CPU threads: what is chosen from which times, at which cost, and what is a user's own setting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from sitar import threads
from sitar.threads import SETTINGS, Rehearsal, candidates, choose, fastest, torchs_numbers, users_number


@pytest.fixture(autouse=True)
def _threads_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({1: 1.0}, 1),
        ({1: 1.0, 2: 40.0}, 1),
        ({1: 1.0, 2: 0.6}, 2),
        ({1: 1.0, 2: 1.0}, 1),
        ({1: 1.0, 2: 0.95}, 1),  # not worth a second core
        ({1: 1.0, 8: 0.30, 4: 0.31, 2: 0.55}, 4),
        ({1: 1.0, 8: 0.90, 4: 0.80, 2: 0.55}, 2),
        ({1: 1.0, 8: 0.13, 4: 0.26, 2: 0.51}, 8),
    ],
)
def test_the_fewest_threads_that_are_fast(seconds: dict[int, float], expected: int) -> None:
    assert choose(seconds) == expected


def test_what_is_tried() -> None:
    assert [candidates(most) for most in (2, 3, 6, 8)] == [[2], [3, 2], [6, 4, 2], [8, 4, 2]]


def test_what_is_timed_for_a_comparison_is_a_mean_over_a_while() -> None:
    machine = Machine(lambda number: 0.001, steps=2_000)
    assert threads.seconds_of_a_step(1, machine.rehearsal, lambda: machine.now) == pytest.approx(0.001)
    assert len(machine.threads) > 100


class Machine:
    """A clock that only steps move, each by the seconds that `taken` says for a number of threads."""

    def __init__(self, taken: Callable[[int], float], steps: int = 10_000) -> None:
        self.taken, self.now, self.threads = taken, 0.0, list[int]()
        self.rehearsal = Rehearsal(self.step, steps)

    def step(self) -> None:
        self.threads.append(torch.get_num_threads())
        self.now += self.taken(self.threads[-1])

    def fastest(self, most: int) -> int:
        return fastest(most, self.rehearsal, lambda: self.now)


def test_busy_cores_are_left_to_others() -> None:
    """The case that this is for: a step of 5 ms takes 230 ms on two threads. Finding out costs less than a second."""
    machine = Machine({1: 0.005, 2: 0.23}.__getitem__)
    assert machine.fastest(2) == 1
    assert machine.now < 1


def test_idle_cores_are_used() -> None:
    machine = Machine(lambda n: 0.1 / n)
    assert machine.fastest(8) == 8
    assert machine.now < threads.ENOUGH_SECONDS


def test_rare_long_waits_count() -> None:
    """On two threads most steps are faster, and every tenth waits for a core: a median would choose them."""
    machine = Machine(lambda n: 0.005 if n == 1 else (0.2 if len(machine.threads) % 10 == 0 else 0.003))
    assert machine.fastest(2) == 1


def test_one_thread_has_a_second_chance() -> None:
    """It was timed while another program had the core, and two threads while nobody had."""
    machine = Machine(lambda n: 0.010 if machine.now < 0.3 else {1: 0.005, 2: 0.006}[n])
    assert machine.fastest(2) == 1


@pytest.mark.parametrize(("alone", "most", "expected"), [(40.0, 64, 64), (3.0, 2, 2)])
def test_steps_of_a_large_model_are_timed_once(alone: float, most: int, expected: int) -> None:
    machine = Machine(lambda n: alone / n)
    assert machine.fastest(most) == expected
    assert machine.threads.count(1) == 1
    assert machine.now < alone + 2 * threads.LONG_SECONDS + threads.ENOUGH_SECONDS


def test_many_cores_cost_no_more_than_a_few_seconds() -> None:
    machine = Machine(lambda n: 0.5)
    assert machine.fastest(256) == 1
    assert machine.now < threads.ENOUGH_SECONDS + 4 * 0.5


def test_a_short_run_is_not_timed_for_longer_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORTH_SECONDS", 0.0)
    machine = Machine(lambda n: 0.001 * n, steps=20)
    assert machine.fastest(2) == 1
    assert len(machine.threads) <= 6


def test_two_steps_tell_that_a_run_is_short() -> None:
    machine = Machine(lambda n: 0.003, steps=1700)
    assert machine.fastest(2) == 1
    assert machine.threads == [1, 1], "the first of them does what is done only once"


@pytest.mark.parametrize(("steps", "expected"), [(1400, 1), (1600, 2)])
def test_what_one_thread_does_in_seconds_is_left_to_it(steps: int, expected: int) -> None:
    """Steps of 10 ms take 14 or 16 s. More threads are not even started for the first, however fast they may be."""
    machine = Machine(lambda n: 0.01 / n, steps)
    assert machine.fastest(2) == expected
    assert set(machine.threads) == ({1} if expected == 1 else {1, 2})
    assert machine.now < 1


def test_one_core_needs_no_choice() -> None:
    machine = Machine(lambda n: 1.0)
    assert machine.fastest(1) == 1
    assert machine.threads == []


@pytest.mark.parametrize("name", SETTINGS)
def test_the_environment_is_a_users_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "torchs_numbers", lambda: {3})
    torch.set_num_threads(3)
    assert users_number() is None
    monkeypatch.setenv(name, "")
    assert users_number() is None
    monkeypatch.setenv(name, "3")
    assert users_number() == 3


def test_a_call_of_torch_is_a_users_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "torchs_numbers", lambda: {8, 4})
    found = []
    for number in (1, 2, 4, 8, 16):
        torch.set_num_threads(number)
        found.append(users_number())
    assert found == [1, 2, None, None, 16]


def test_torchs_own_number_is_known() -> None:
    environment = {key: value for key, value in os.environ.items() if key not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.get_num_threads())"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) in torchs_numbers()


def test_without_linux_half_as_many_cores_are_torchs_own_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SIBLINGS", "/nowhere/{}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert torchs_numbers() == {8, 4}
