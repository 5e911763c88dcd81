"""Every script of reproduce/ can be imported: what it takes from the package is still there."""

from __future__ import annotations

import pytest

from helpers.scripts import ROOT, script


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "reproduce").glob("*.py")))
def test_a_script_can_be_imported(name: str) -> None:
    script(f"reproduce/{name}")
