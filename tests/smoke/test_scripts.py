"""Every script of reproduce/ and benchmarks/ can be imported: what it takes from the package is still there."""

from __future__ import annotations

import pytest

from helpers.scripts import ROOT, script

FOLDERS = ("reproduce", "benchmarks")


@pytest.mark.parametrize(
    "path", [f"{folder}/{file.name}" for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.py"))]
)
def test_a_script_can_be_imported(path: str) -> None:
    script(path)
