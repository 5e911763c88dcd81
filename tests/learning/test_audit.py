"""The audit finds colour where it gives the label away, and nothing where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

import sitar
from sitar.audit.shortcuts import audit_run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("rho", "kind"), [(0.9, "one"), (0.5, "none")])
def test_color_mnist(rho: float, kind: str, tmp_path: Path) -> None:
    folder = sitar.train("color_mnist/vae", overrides=[f"data.rho={rho}"], out=tmp_path / "run", progress=False)
    audit = audit_run(folder)
    assert audit["verdict"]["kind"] == kind
    if kind == "one":
        assert "it is rather color than the label" in audit["verdict"]["words"]
        assert audit["attribute"]["attribute_auc"][audit["axes"][0]["axis"]] > 0.95
