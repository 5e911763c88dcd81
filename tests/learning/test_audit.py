"""The audit finds colour where it gives the label away, and nothing where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import sitar
from sitar.analysis.audit.audit import audit_run
from sitar.data import load_data
from sitar.presets import load_config

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("rho", "kind"), [(0.9, "one"), (0.5, "none")])
def test_color_mnist(rho: float, kind: str, tmp_path: Path) -> None:
    folder = sitar.train("color_mnist/vae", overrides=[f"data.rho={rho}"], out=tmp_path / "run", progress=False)
    audit = audit_run(folder)
    assert audit["verdict"]["kind"] == kind
    if kind == "one":
        assert "it is rather color than the label" in audit["verdict"]["words"]
        assert audit["attribute"]["attribute_auc"][audit["axes"][0]["axis"]] > 0.95


def test_a_small_folder(tmp_path: Path) -> None:
    """A thousand digits whose colour gives the label away, as a user would bring them, with the preset as it is."""
    digits = load_data(load_config("color_mnist/erm", ["data.rho=0.95", "data.train_size=1000"]).data).train
    for i, (x, y) in enumerate(zip(digits.x, digits.y.tolist(), strict=True)):
        file = tmp_path / "digits" / ("low", "high")[y] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x.permute(1, 2, 0).numpy()).save(file)
    folder = sitar.train(
        "folder/vae", overrides=[f"data.root={tmp_path / 'digits'}"], out=tmp_path / "run", progress=False
    )
    assert audit_run(folder)["verdict"]["kind"] in ("one", "several")
