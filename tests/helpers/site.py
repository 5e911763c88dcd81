"""The site, built as CI builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import ROOT


def build(out: Path) -> Path:
    """Build the site in the folder `out`. A warning is an error."""
    pytest.importorskip("mkdocs", reason="needs MkDocs: pip install --group docs")
    pytest.importorskip("mkdocstrings", reason="needs mkdocstrings: pip install --group docs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out
