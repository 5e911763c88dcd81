"""Where nothing contradicts the shortcut, unlabelled images bring a second head to the shape of the digit.

Every training digit has the colour of its label, so ERM reads the colour. In `val_ood` no digit has it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import sitar

pytestmark = pytest.mark.slow
DATA = ("data.rho=1.0", "data.label_noise=0", "data.image_size=14", "data.train_size=4000", "data.eval_size=2000")
SETTINGS = (*DATA, "data.unlabelled=val_ood", "train.epochs=15", "train.batch_size=128", "train.learning_rate=0.002")


def test_the_second_model_of_dbat_reads_the_shape(tmp_path: Path) -> None:
    result = sitar.train(
        "color_mnist/erm", overrides=["method.name=dbat", *SETTINGS], out=tmp_path / "run", device="cpu", progress=False
    ).result()
    first, second = result["heads"]["splits"]["ood_test"]
    assert first["average"] < 0.1
    assert second["average"] > 0.8
    assert result["heads"]["chosen"] == 1
    assert result["splits"]["ood_test"]["average"] == second["average"]
    assert result["splits"]["id_test"]["average"] > 0.8
