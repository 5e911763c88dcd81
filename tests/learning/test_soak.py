"""Rounds of training, predicting, asking and reporting in one process leave memory, files and threads as they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import ROOT, script
from sitar.interpreter import module_environment

SOAK = script("benchmarks/soak.py")


def rounds(memory: float, files: float) -> list[dict[str, float]]:
    """Forty rounds, of which each adds so much."""
    return [{"memory": 700 + memory * i, "files": 9 + files * i, "threads": 2, "children": 0} for i in range(40)]


def test_growth_is_seen() -> None:
    assert all(found["flat"] for found in SOAK.judged(rounds(0, 0)).values())
    assert not SOAK.judged(rounds(2, 0))["memory"]["flat"]
    assert not SOAK.judged(rounds(0, 0.1))["files"]["flat"]


@pytest.mark.slow
def test_an_hour_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--minutes", "60"]
    done = subprocess.run(command, check=False, env=module_environment(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
