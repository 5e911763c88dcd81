"""A finished run is a model that can leave the building: it predicts without the data that it was trained on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sitar
from helpers import made_data
from helpers.cli import sitar as command
from helpers.cli import sitar_error
from helpers.runs import TINY_MODEL, run, settings
from sitar.config import RunConfig
from sitar.data import load_data
from sitar.errors import DataError, RunError
from sitar.registry import METHODS
from sitar.run_folder import RunFolder

NAMES = list(METHODS.available())
MAKERS = {"features": made_data.npz, "images": made_data.table}
OPTIONS = {"chroma_vae": {"neighbours": 3, "shortcut_dim": 2}}
TRAIN = {"epochs": 2, "batch_size": 8}


@pytest.fixture(autouse=True)
def _data_once() -> None:
    """Data is read from its files here, whenever it is asked for."""


def prepared(tmp_path: Path, name: str, kind: str, **model: Any) -> tuple[RunConfig, np.ndarray]:
    """Return settings on data below tmp_path/data, and what is evaluated on."""
    (tmp_path / "data").mkdir()
    data = MAKERS[kind](tmp_path / "data").model_dump()
    config = settings(name, data=data, model={**TINY_MODEL, **model}, train=TRAIN, **OPTIONS.get(name, {}))
    return config, load_data(config.data).evaluation["val"].x.numpy()


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_predicts_without_its_data(name: str, kind: str, tmp_path: Path) -> None:
    config, x = prepared(tmp_path, name, kind)
    folder = run(config, tmp_path / "run")
    shutil.rmtree(tmp_path / "data")
    moved = tmp_path / "elsewhere"
    folder.path.rename(moved)
    model = sitar.load(moved, device="cpu")
    recorded = RunFolder(moved).predictions()["val/logits"]
    np.testing.assert_array_equal(model.logits(x), recorded)  # to the bit
    assert list(model.classes) == RunFolder(moved).result()["classes"]


def test_a_run_behind_a_frozen_encoder_predicts_without_its_data(tmp_path: Path) -> None:
    encoder = {"encoder": "test_resnet.r160_in1k", "encoder_weights": "random", "freeze_encoder": True}
    config, x = prepared(tmp_path, "erm", "images", **encoder)
    folder = run(config, tmp_path / "run")
    shutil.rmtree(tmp_path / "data")
    np.testing.assert_array_equal(sitar.load(folder.path, device="cpu").logits(x), folder.predictions()["val/logits"])
    with folder.encoder_file.open("r+b") as file:
        file.truncate(2**32)  # without blocks on the disk
    with pytest.raises(RunError, match="4,294,967,296 bytes"):
        sitar.load(folder.path, device="cpu")
    folder.encoder_file.unlink()
    with pytest.raises(RunError, match="lost the weights of its encoder"):
        sitar.load(folder.path, device="cpu")


def test_what_needs_the_data_says_how_to_name_its_new_place(tmp_path: Path) -> None:
    config, _ = prepared(tmp_path, "erm", "features")
    folder = run(config, tmp_path / "run")
    (tmp_path / "data").rename(tmp_path / "other")
    model = sitar.load(folder.path, device="cpu")
    with pytest.raises(DataError, match=r"has moved, say once where it is: `sitar train .* --set data\.file=NEW`"):
        model.evaluate()


def test_a_finished_run_can_be_told_where_its_data_is_now(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    made_data.npz(tmp_path / "data")
    words = ["--seed", 0, "--quiet", "--device", "cpu", "--set", "train.epochs=1", "--set", "data.attribute_key=site"]
    words += ["--out", tmp_path / "run"]
    command("train", "npz/erm", *words, "--set", f"data.file={tmp_path / 'data/data.npz'}")
    before = RunFolder(tmp_path / "run").predictions()
    (tmp_path / "data").rename(tmp_path / "other")
    assert "has moved" in sitar_error("evaluate", tmp_path / "run")
    command("train", "npz/erm", *words, "--resume", "--set", f"data.file={tmp_path / 'other/data.npz'}")
    command("evaluate", tmp_path / "run")
    after = RunFolder(tmp_path / "run").predictions()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_other_data_in_the_new_place_is_refused(tmp_path: Path) -> None:
    config, _ = prepared(tmp_path, "erm", "features")
    folder = run(config, tmp_path / "run")
    other = np.load(tmp_path / "data/data.npz")
    np.savez(tmp_path / "other.npz", **{**other, "x": other["x"] + 1})
    data = config.data.model_copy(update={"file": str(tmp_path / "other.npz")})
    with pytest.raises(sitar.errors.RunError, match="data has changed"):
        run(config.model_copy(update={"data": data}), folder.path, resume=True)
    assert folder.read_config()["data"]["file"] == str(tmp_path / "data/data.npz")
