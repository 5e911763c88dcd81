"""Memory that a step has freed serves the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from sitar.allocator import SETTINGS, keep_freed_memory

ROUNDS, FLOATS = 10, 10 * 2**20  # 40 MiB: more than the C library keeps by itself
PAGES = 4 * FLOATS // 4096  # of a round
COUNT_FAULTS = f"""
import resource, torch
from sitar.devices import resolve_device
def a_step():
    torch.ones({FLOATS})
def faults():
    for _ in range(2 * {ROUNDS}):  # until the blocks have found their places
        a_step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({ROUNDS}):
        a_step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // {ROUNDS}
before = faults()
resolve_device("cpu")
print(before, faults())
"""
on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the GNU C library alone gives memory back")


def faults(**environment: str) -> list[int]:
    command = [sys.executable, "-c", COUNT_FAULTS]
    path = ":".join(filter(None, sys.path))
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": path} | environment
    )
    return [int(word) for word in printed.stdout.split()]


@on_glibc
def test_a_step_on_the_cpu_reuses_the_memory_of_the_step_before() -> None:
    before, after = faults()
    assert before > PAGES / 2, "the C library has kept the memory by itself: this test compares nothing"
    assert after < PAGES / 100


@on_glibc
def test_the_setting_of_a_user_wins() -> None:
    before, after = faults(MALLOC_TRIM_THRESHOLD_="65536")
    assert after == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert keep_freed_memory.__wrapped__() is False


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert keep_freed_memory.__wrapped__() is False
