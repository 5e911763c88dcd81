"""No input ends in a traceback, takes 10 s or needs 2 GB: 1,000 in CI, 100,000 with -m slow. The driver would tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and forks are those of Linux")
WATCHED = """
import json, os, signal, time
from pathlib import Path
from fuzz.driver import run
from fuzz.parsers.parser import Parser
from sitar.errors import DataError

def read(content):
    match content:
        case b"refused": raise DataError("It is refused, since a reason is given.")
        case b"silent": raise DataError("")
        case b"raw": raise KeyError("raw")
        case b"slow": time.sleep(60)
        case b"deaf":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # as in code that returns to no handler
            time.sleep(60)
        case b"large": bytearray(2**30)
        case b"dead": os.abort()

seeds = [b"fine", b"refused", b"silent", b"raw", b"slow", b"deaf", b"large", b"dead", b"fine"]
parser = Parser("made", seeds, read, lambda random, content: content)
counts, failures = run(lambda folder: parser, "made", range(len(seeds)), seconds=0.5, memory=2**29)
print(json.dumps([dict(counts), [[f.number, f.error] for f in failures]]))
"""


def in_child(*arguments: str, timeout: int = 3600) -> subprocess.CompletedProcess[str]:
    """Run Python, as a process without threads: the driver forks."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.ci
def test_the_driver_finds_every_bad_end() -> None:
    done = in_child("-c", WATCHED)
    assert done.returncode == 0, done.stderr
    counts, failures = json.loads(done.stdout)
    assert counts == {"read": 2, "refused": 1, "bad": 6}
    numbers, errors = [number for number, _ in failures], dict(failures)
    assert sorted(numbers) == [2, 3, 4, 5, 6, 7]
    assert "says nothing" in errors[2]
    assert "KeyError" in errors[3]
    assert "more than 0.5 s" in errors[4]
    assert "ended with status" in errors[5]
    assert "MemoryError" in errors[6]
    assert "ended with status" in errors[7]


@pytest.mark.ci
@pytest.mark.parametrize("half", ["0/2", "1/2"])
def test_a_thousand_inputs(half: str, tmp_path: Path) -> None:
    done = in_child("-m", "fuzz.driver", "--inputs", "1000", "--part", half, "--keep", str(tmp_path))
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("half", ["0/2", "1/2"])
def test_a_hundred_thousand_inputs(half: str, tmp_path: Path) -> None:
    done = in_child(
        "-m", "fuzz.driver", "--inputs", "100000", "--part", half, "--keep", str(tmp_path), timeout=6 * 3600
    )
    assert done.returncode == 0, done.stdout
