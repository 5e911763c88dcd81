"""The Makefile, as far as it can be tried without installing everything again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def project_with_python(folder: Path, script: str) -> Path:
    """The Makefile in a folder of its own, and a python3 that does what `script` says."""
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").touch()
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\n{script}")
    python.chmod(0o755)
    return python


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_setup_names_the_package_when_no_environment_can_be_made(tmp_path: Path) -> None:
    """A python3 without venv and virtualenv, and no uv: one line that says what to install."""
    bare = project_with_python(tmp_path, '[ "$1" = -m ] && exit 1\nexit 0\n')
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("make", "sh", "test", "rm", "touch", "echo", "true", "false"):
        if path := shutil.which(tool):
            (tools / tool).symlink_to(path)
    done = subprocess.run(
        ["make", "setup", f"PYTHON={bare}"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": str(tools), "HOME": os.environ.get("HOME", "/")},
    )  # fmt: skip
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("has", ["neither", "chromium", "playwright", "both"])
def test_tests_without_a_browser_say_that_they_leave_it_out(has: str, tmp_path: Path) -> None:
    """Every tool of the environment does nothing, so that only what the recipe says is left."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    tools, found = tmp_path / ".venv/bin", tmp_path / "bin"
    tools.mkdir(parents=True)
    found.mkdir()
    for tool in ("make", "sh", "test", "echo"):
        if path := shutil.which(tool):
            (found / tool).symlink_to(path)
    imports = 0 if has in ("playwright", "both") else 1
    for tool in ("python", "ruff", "lint-imports", "pyright"):
        (tools / tool).write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit {imports}\nexit 0\n')
        (tools / tool).chmod(0o755)
    if has in ("chromium", "both"):
        (found / "chromium").symlink_to(tools / "ruff")
    (tmp_path / ".venv/.ready").touch()
    done = subprocess.run(
        ["make", "test"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": str(found)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ("No browser here: the tests in tests/browser were left out" in done.stdout) == (has != "both")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_setup_refuses_an_old_python(tmp_path: Path) -> None:
    old = project_with_python(tmp_path, "exit 1\n")
    done = subprocess.run(
        ["make", "setup", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert "3.11 or newer" in done.stdout
