"""The code of docs/estimator.md runs, each block by itself."""

from __future__ import annotations

import re

import pytest

from helpers.scripts import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "estimator.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.ci
@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_runs(code: str) -> None:
    exec(compile(code, "docs/estimator.md", "exec"), {})
