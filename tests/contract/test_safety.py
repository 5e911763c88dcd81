"""A run folder has one writer; what does not fit is refused, not guessed."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch.optim import Adam

import sitar
from helpers.runs import assert_same_tensors, hashes, run, weights
from sitar.config import run_config
from sitar.errors import ConfigError, DataError, RunError
from sitar.presets import load_config
from sitar.reporting.comparison import compare_runs, group_runs, read_runs
from sitar.run_folder import LOCK, RunFolder
from sitar.training.optimise import restore_optimiser
from sitar.training.run import default_folder, train_keeping_data

TINY = ["data.image_size=14", "data.train_size=200", "model.channels=[4]", "train.epochs=1"]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    config = load_config("color_mnist/erm", TINY)
    folder = RunFolder(tmp_path / "run")
    folder.create(config.to_dict())
    with folder.lock():
        before = hashes(folder.path)
        assert before.keys() == {"config.yaml", "unfinished", LOCK}
        with pytest.raises(RunError, match=rf"Process {os.getpid()} is writing"):
            run(config, folder.path, resume=True)
        assert hashes(folder.path) == before, "the second process has changed nothing"
    assert run(config, folder.path, resume=True).is_done  # the lock went with its holder


def test_a_run_that_another_process_finished_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """The other process is faster by the time that it takes to load the data, which is before the lock."""
    config = load_config("color_mnist/erm", TINY)
    folder = RunFolder(tmp_path / "run")
    folder.create(config.to_dict())
    finished: dict[str, str] = {}

    def other_process(_: Any) -> None:
        finished.update(hashes(run(config, folder.path, resume=True).path))

    train_keeping_data(config, folder, device="cpu", resume=True, progress=False, overrides=[], on_data=other_process)
    after = hashes(folder.path)
    assert {name: after[name] for name in finished} == finished
    assert after.keys() - finished.keys() <= {LOCK}


def test_a_run_that_another_process_started_meanwhile_is_left_alone(tmp_path: Path) -> None:
    config = load_config("color_mnist/erm", TINY)
    folder, finished = RunFolder(tmp_path / "run"), {}

    def other_process(_: Any) -> None:
        finished.update(hashes(run(config, folder.path).path))

    with pytest.raises(RunError, match="already used"):
        train_keeping_data(
            config, folder, device="cpu", resume=False, progress=False, overrides=[], on_data=other_process
        )
    after = hashes(folder.path)
    assert {name: after[name] for name in finished} == finished


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
    with pytest.raises(DataError, match="an array of numbers"):
        model.predict(np.array([None]))


def test_features_that_are_no_numbers_are_not_predicted(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(60) % 2)
    settings = [f"data.file={tmp_path / 'data.npz'}", "train.epochs=1"]
    model = sitar.load(sitar.train("npz/erm", overrides=settings, out=tmp_path / "run", progress=False))
    for wrong in (np.nan, np.inf):
        x[1, 2] = wrong
        with pytest.raises(DataError, match="NaN or infinite"):
            model.predict_proba(x)


def test_weights_that_do_not_fit_are_refused(folder: RunFolder) -> None:
    settings = folder.read_config()
    try:
        folder.write_config({**settings, "model": {**settings["model"], "hidden": 64}})
        with pytest.raises(RunError, match="do not fit"):
            sitar.load(folder)
    finally:
        folder.write_config(settings)


FILES = ("config.yaml", "metrics.jsonl", "result.json", "predictions.npz", "environment.json",
         "checkpoint/model.safetensors")  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_of_a_finished_run_is_named(folder: RunFolder, name: str, tmp_path: Path) -> None:
    readers = {
        "config.yaml": RunFolder.read_config, "metrics.jsonl": RunFolder.metrics, "result.json": RunFolder.result,
        "predictions.npz": RunFolder.predictions, "environment.json": RunFolder.environment,
        "checkpoint/model.safetensors": RunFolder.model,
    }  # fmt: skip
    copy = RunFolder(shutil.copytree(folder.path, tmp_path / "copy"))
    sound = (copy.path / name).read_bytes()
    readers[name](copy)
    for bit in np.random.default_rng(0).integers(0, 8 * len(sound), 20).tolist():
        (copy.path / name).write_bytes(_flipped(sound, bit))
        with pytest.raises(RunError, match=f"{name}' is damaged"):
            readers[name](copy)
        copy.done_file.write_bytes(b"{" + folder.done_file.read_bytes())
        with pytest.raises(RunError, match="done' is damaged"):
            readers[name](copy)
        copy.done_file.write_bytes(b"")
        with suppress(RunError):  # a folder of an early release has no checksums, and is read without them
            readers[name](copy)
        copy.done_file.write_bytes(folder.done_file.read_bytes())


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_finished_run_whose_data_moved_keeps_sound_checksums(folder: RunFolder) -> None:
    folder.write_config(folder.read_config())
    noted = json.loads(folder.done_file.read_text())["sha256"]
    assert {name: hashes(folder.path)[name] for name in noted} == noted
    assert noted.keys() == set(FILES)


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
    overrides += ["model.head_hidden=null", "method.noise=axis"]
    tensors = weights(
        sitar.train("color_mnist/sitar_best", overrides=overrides, out=tmp_path / "run", device="cpu", progress=False)
    )
    found = [tensors["vae.mean.weight"].norm().item(), tensors["classifier.layers.0.weight"].sum().item()]
    assert found == pytest.approx([1.84568, 3.80300], rel=1e-3)


@pytest.mark.parametrize(
    ("preset", "head", "norm", "loss"),
    [
        ("erm", "network.mean.weight", 1.833672, 0.699318),
        ("jtt", "second.mean.weight", 1.857622, 0.578423),
        ("chroma_vae", "vae.mean.weight", 1.834119, 150.3822),
        ("sitar_factor", "vae.mean.weight", 1.834244, 150.9898),
    ],
)
def test_other_methods_have_the_same_weights_as_ever(
    preset: str, head: str, norm: float, loss: float, tmp_path: Path
) -> None:
    """The numbers are those of the code before its files were moved (cb72a2b), on the CPU with one thread."""
    small = ["data.image_size=14", "data.train_size=500", "data.eval_size=100", "model.channels=[4]", "train.epochs=2"]
    small += ["model.head_hidden=null"]
    folder = sitar.train(f"color_mnist/{preset}", overrides=small, out=tmp_path / "run", device="cpu", progress=False)
    assert weights(folder)[head].norm().item() == pytest.approx(norm, rel=1e-4)
    assert folder.metrics()[-1]["loss"] == pytest.approx(loss, rel=1e-4)


def test_a_used_folder_is_refused_before_data_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("of somebody")
    missing = ["data.root=/there/is/no/such/folder"]
    with pytest.raises(RunError, match="already used"):
        sitar.train("folder/erm", overrides=missing, out=tmp_path, progress=False)


def test_data_that_cannot_be_loaded_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        sitar.train(
            "folder/erm", overrides=["data.root=/there/is/no/such/folder"], out=tmp_path / "run", progress=False
        )
    assert not (tmp_path / "run").exists()


def _features(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    x = random.normal(size=(60, 4)).astype(np.float32)
    np.savez(path, x=x, y=(x[:, 0] > 0).astype(int))
    return path


def _train(file: Path, out: Path, *more: str, **options: Any) -> RunFolder:
    small = ["train.epochs=2", "train.least_steps=0", "model.latent_dim=2", f"data.file={file}"]
    return sitar.train("npz/erm", overrides=[*small, *more], out=out, progress=False, device="cpu", **options)


def test_data_that_moved_is_the_same_data(tmp_path: Path) -> None:
    """A run is stopped, its data moves, and it goes on: one setting says where, and the run keeps it."""
    here, there = _features(tmp_path / "here.npz"), _features(tmp_path / "there" / "moved.npz")
    whole = _train(here, tmp_path / "whole")
    cut = tmp_path / "cut"
    shutil.copytree(whole.path, cut)
    (cut / "done").unlink()
    resumed = _train(there, cut, resume=True)
    assert resumed.read_config()["data"]["file"] == str(there)
    here.unlink()
    assert sitar.load(resumed).classes == ("0", "1")
    assert_same_tensors(weights(whole), weights(resumed))


def test_other_data_is_not_resumed_on(tmp_path: Path) -> None:
    whole = _train(_features(tmp_path / "a.npz"), tmp_path / "run")
    (whole.path / "done").unlink()
    with pytest.raises(RunError, match="data has changed"):
        _train(_features(tmp_path / "b.npz", seed=1), tmp_path / "run", resume=True)


def test_runs_on_moved_data_share_a_row(tmp_path: Path) -> None:
    a, moved = _features(tmp_path / "a.npz"), _features(tmp_path / "elsewhere" / "b.npz")
    other = _features(tmp_path / "other.npz", seed=1)
    runs = [_train(a, tmp_path / "0"), _train(moved, tmp_path / "1", seed=1), _train(other, tmp_path / "2")]
    rows = group_runs(read_runs([run.path for run in runs]))
    assert [row.seeds for row in rows] == [[0, 1], [0]]
    assert str(other) in rows[1].label, "other data under the same settings is told apart"
    (comparison, _), left_out = compare_runs([run.path for run in runs])
    assert not left_out
    assert [run.seed for run in comparison.runs] == [0, 1]
    twin = _train(moved, tmp_path / "twin")
    with pytest.raises(RunError, match="the same run"):
        read_runs([runs[0].path, twin.path])


def test_runs_of_two_releases_share_a_row(tmp_path: Path) -> None:
    """An earlier release wrote settings that are gone today, with the values that still hold."""
    data = _features(tmp_path / "a.npz")
    early, late = _train(data, tmp_path / "0"), _train(data, tmp_path / "1", seed=1)
    settings = yaml.safe_load(early.config_file.read_text())
    settings["model"]["recon_target"] = "detached"
    early.write_config(settings)
    (row,) = group_runs(read_runs([early.path, late.path]))
    assert row.seeds == [0, 1]
    assert "recon_target" not in row.label
    settings["model"]["recon_target"] = "live"
    early.write_config(settings)
    assert len(group_runs(read_runs([early.path, late.path]))) == 2


def test_a_run_that_lost_its_environment_stays_in_the_row_of_its_setting(tmp_path: Path) -> None:
    file = _features(tmp_path / "a.npz")
    runs = [_train(file, tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    runs[0].environment_file.unlink()
    (row,) = group_runs(read_runs([run.path for run in runs]))
    assert row.seeds == [0, 1]


def test_changed_data_in_the_same_place_is_told_apart_by_its_checksum(tmp_path: Path) -> None:
    first, second = (_train(_features(tmp_path / "a.npz"), tmp_path / name) for name in ("first", "second"))
    second.write_environment({**(second.environment() or {}), "data_checksum": "of the file as it was changed"})
    rows = group_runs(read_runs([first.path, second.path]))
    assert len({row.label for row in rows}) == 2
    assert all("data_checksum=" in row.label for row in rows)


def test_settings_without_a_preset_are_compared(tmp_path: Path) -> None:
    folder = _train(_features(tmp_path / "a.npz"), tmp_path / "0")
    config = folder.read_config()
    del config["preset"]
    folder.write_config(config)
    (row,) = group_runs(read_runs([folder.path]))
    assert row.label == "npz/erm", "its result knows the preset"
