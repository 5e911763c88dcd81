"""A run folder has one writer; what does not fit is refused, not guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.optim import Adam

import sitar
from helpers.runs import run, weights
from sitar.config import run_config
from sitar.errors import ConfigError, DataError, RunError
from sitar.presets import load_config
from sitar.run_folder import RunFolder
from sitar.training.optimise import restore_optimiser
from sitar.training.run import default_folder

TINY = ["data.image_size=14", "data.train_size=200", "model.channels=[4]", "train.epochs=1"]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    config = load_config("color_mnist/erm", TINY)
    folder = RunFolder(tmp_path / "run")
    folder.create(config.to_dict())
    with folder.lock(), pytest.raises(RunError, match="Another process"):
        run(config, folder.path, resume=True)
    assert {path.name for path in folder.path.iterdir()} == {"config.yaml"}
    assert run(config, folder.path, resume=True).is_done  # the lock went with its holder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return sitar.train("color_mnist/erm", overrides=TINY, out=tmp_path_factory.mktemp("safety") / "run", progress=False)


def test_only_images_are_predicted(folder: RunFolder) -> None:
    model = sitar.load(folder)
    x = model.data.evaluation["val"].x[:4].numpy()
    np.testing.assert_allclose(model.logits(x), model.logits(x.astype(np.float32) / 255), rtol=1e-5, atol=1e-6)
    for wrong in (x.astype(np.int64), x.astype(np.float32), np.full(x.shape, np.nan, np.float32)):
        with pytest.raises(DataError, match=r"uint8, or as floats in \[0, 1\]"):
            model.predict(wrong)


def test_weights_that_do_not_fit_are_refused(folder: RunFolder) -> None:
    content = folder.config_file.read_text()
    try:
        folder.config_file.write_text(content.replace("hidden: 128", "hidden: 64"))
        with pytest.raises(RunError, match="do not fit"):
            sitar.load(folder)
    finally:
        folder.config_file.write_text(content)


def test_an_optimiser_keeps_its_own_options() -> None:
    """What a run on another device has saved must not decide how this one steps."""
    before = Adam([torch.nn.Parameter(torch.ones(2))], lr=0.5, foreach=True)
    before.param_groups[0]["params"][0].grad = torch.ones(2)
    before.step()
    after = Adam([torch.nn.Parameter(torch.ones(2))], lr=0.1, fused=True)
    restore_optimiser(after, before.state_dict())
    (group,) = after.param_groups
    assert (group["lr"], group["fused"], group["foreach"]) == (0.1, True, None)
    assert after.state[group["params"][0]]["step"].item() == 1


@pytest.mark.parametrize("preset", ["../mine.yaml", "/somewhere/mine.yaml", "mine.yml"])
def test_runs_of_own_files_stay_below_runs(preset: str) -> None:
    raw = {"data": {"name": "color_mnist"}, "method": {"name": "erm"}}
    assert default_folder(run_config(raw, preset=preset, seed=3), []) == Path("runs/mine/seed3")


def test_warm_up_longer_than_training_is_refused() -> None:
    with pytest.raises(ConfigError, match="warmup_epochs 500 must be fewer"):
        load_config("color_mnist/erm", ["train.warmup_epochs=500"])


def test_the_same_run_has_the_same_weights_as_ever(tmp_path: Path) -> None:
    """A change that is not meant to move a number must not. Equal up to rounding, which differs between machines."""
    overrides = ["data.image_size=14", "data.train_size=2000", "model.channels=[4]", "train.epochs=2"]
    tensors = weights(
        sitar.train("color_mnist/sitar_best", overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
    )
    found = [tensors["vae.mean.weight"].norm().item(), tensors["classifier.layers.0.weight"].sum().item()]
    assert found == pytest.approx([1.84865, 3.51206], rel=1e-3)
