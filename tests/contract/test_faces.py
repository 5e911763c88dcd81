"""Training on real faces, as a user starts it: the presets, the cache, groups that are empty in training."""

from __future__ import annotations

from pathlib import Path

import pytest

import sitar
from sitar.errors import ConfigError

TINY = [
    "data.partition=first_10k",
    "data.image_size=16",
    "model.channels=[4]",
    "train.epochs=1",
    "train.batch_size=64",
]


@pytest.fixture(autouse=True)
def few_faces(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sitar.data.benchmarks.celeba.FIRST_10K", 400)


@pytest.mark.data
@pytest.mark.parametrize("preset", ["celeba/erm", "celeba/control", "celeba/sitar"])
def test_presets_train_on_faces(preset: str, test_data: Path, tmp_path: Path) -> None:
    overrides = [f"data.root={test_data / 'celeba'}", *TINY]
    folder = sitar.train(preset, overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
    splits = folder.result()["splits"]
    assert set(splits) == {"train", "val", "test"}
    val, test = splits["val"]["groups"], splits["test"]["groups"]
    assert val["label=0,Male=0"] == {"n": 0, "accuracy": None}
    assert all(group["n"] > 0 for name, group in test.items() if name != "label=1,Male=1")
    model = sitar.load(folder, device="cpu")
    assert model.classes == ("not Blond_Hair", "Blond_Hair")
    assert model.evaluate()["test"]["average"] == splits["test"]["average"]


@pytest.mark.data
def test_worst_group_is_refused_where_groups_are_empty(test_data: Path, tmp_path: Path) -> None:
    overrides = [f"data.root={test_data / 'celeba'}", *TINY, "train.selection=val_worst_group"]
    with pytest.raises(ConfigError, match="label=0,Male=0"):
        sitar.train("celeba/erm", overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
