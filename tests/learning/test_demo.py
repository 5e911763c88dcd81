"""Does it learn? The light presets on real MNIST, minutes each: run with -m slow."""

from __future__ import annotations

from pathlib import Path

import pytest

import sitar


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_demo_presets_hold(seed: int, tmp_path: Path) -> None:
    ood = {
        name: sitar.train(f"demo/{name}", seed=seed, out=tmp_path / name, progress=False).result()["splits"]["ood_test"]
        for name in ("erm", "control", "sitar")
    }
    assert ood["erm"]["average"] < 0.20
    assert ood["control"]["average"] < 0.20
    assert ood["sitar"]["average"] > 0.65
