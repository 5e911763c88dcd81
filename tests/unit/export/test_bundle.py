"""What is published of a run: an explicit list, without paths, with which others can predict."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

import sitar
from helpers import made_data
from helpers.bits import damaged
from helpers.runs import TINY_MODEL, run, settings
from sitar.errors import ConfigError, ExportError, RunError
from sitar.export.bundle import Published, bundle, shareable_config, shareable_result
from sitar.export.hub import check_repository
from sitar.run_folder import RunFolder

MAKERS = {"folder": made_data.folder, "table": made_data.table, "npz": made_data.npz}
TRAIN = {"epochs": 1, "batch_size": 16}
RUN = ["README.md", "config.yaml", "result.json", "environment.json", "checkpoint/model.safetensors", "done",
       "SHA256SUMS"]  # fmt: skip
ENCODER = {"encoder": "test_resnet.r160_in1k", "encoder_weights": "random", "freeze_encoder": True}


def written(files: list[Published], folder: Path) -> Path:
    """The files as somebody has them who downloads the repository."""
    for file in files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content if isinstance(file.content, bytes) else file.content.read_bytes())
    return folder


@pytest.mark.parametrize("kind", MAKERS)
def test_whoever_downloads_it_predicts_the_same(kind: str, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    data = MAKERS[kind](tmp_path / "private").model_dump()
    folder = run(settings("jtt", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    x = sitar.load(folder, "cpu").data.evaluation["val"].x.numpy()
    files = bundle(folder, "a card")
    assert [file.name for file in files] == RUN
    downloaded = written(files, tmp_path / "downloaded")
    np.testing.assert_array_equal(sitar.load(downloaded, "cpu").logits(x), folder.predictions()["val/logits"])
    for file in downloaded.rglob("*"):
        assert not file.is_file() or str(tmp_path).encode() not in file.read_bytes(), file
    assert all(file.size == (downloaded / file.name).stat().st_size for file in files)


def test_a_frozen_encoder_and_exported_files_go_along(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = made_data.table(tmp_path / "data").model_dump()
    config = settings("erm", data=data, model={**TINY_MODEL, **ENCODER}, train=TRAIN)
    folder = run(config, tmp_path / "run")
    with pytest.raises(ExportError, match="Nothing is exported yet"):
        bundle(folder, "a card", only_exported=True)
    folder.write_export("onnx", b"a model")
    (folder.path / "export" / "notes.txt").write_text("not on the list")
    names = [file.name for file in bundle(folder, "a card")]
    assert names == [*RUN[:-2], "checkpoint/encoder.safetensors", "export/model.onnx", *RUN[-2:]]
    only = [file.name for file in bundle(folder, "a card", only_exported=True)]
    assert only == ["README.md", "export/model.onnx", "SHA256SUMS"]
    assert not {"predictions.npz", "metrics.jsonl"} & set(names)


def test_damaged_weights_are_not_published(tmp_path: Path) -> None:
    data = {"name": "color_mnist", "train_size": 40, "eval_size": 20}
    folder = run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    whole = folder.model_file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no weights at all"):
        folder.model_file.write_bytes(content)
        with pytest.raises(ExportError, match=r"model\.safetensors' cannot be read"):
            bundle(folder, "a card")
    folder.model_file.unlink()
    with pytest.raises(ExportError, match="cannot be read"):
        bundle(folder, "a card")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
def test_no_file_from_outside_the_run_is_published_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    """A folder from a stranger may hold links to what only its reader has."""
    data = {"name": "color_mnist", "train_size": 40, "eval_size": 20}
    folder = run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    secret = tmp_path / "home"
    secret.mkdir()
    (secret / "model.onnx").write_bytes(b"a key")
    shutil.copy(folder.model_file, secret / "model.safetensors")
    weights = folder.model_file.read_bytes()

    def refused() -> None:
        with pytest.raises(ExportError, match="is not published"):
            bundle(folder, "a card")

    (folder.path / "export").symlink_to(secret)
    refused()
    (folder.path / "export").unlink()
    (folder.path / "export").mkdir()
    (folder.path / "export" / "model.onnx").symlink_to(secret / "model.onnx")
    refused()
    (folder.path / "export" / "model.onnx").unlink()
    folder.model_file.unlink()
    folder.model_file.symlink_to(secret / "model.safetensors")
    refused()
    folder.model_file.unlink()
    os.mkfifo(folder.model_file)
    refused()
    folder.model_file.unlink()
    folder.model_file.write_bytes(weights)
    assert [file.name for file in bundle(folder, "a card")] == RUN


def test_a_published_run_has_the_checksums_of_what_is_published(tmp_path: Path) -> None:
    data = {"name": "color_mnist", "train_size": 40, "eval_size": 20}
    folder = run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    copy = RunFolder(tmp_path / "copy")
    for file in bundle(folder, "a card"):
        (copy.path / file.name).parent.mkdir(parents=True, exist_ok=True)
        (copy.path / file.name).write_bytes(
            file.content if isinstance(file.content, bytes) else file.content.read_bytes()
        )
    assert copy.model() == folder.model()
    whole = bytearray(copy.model_file.read_bytes())
    whole[-1] ^= 1
    copy.model_file.write_bytes(bytes(whole))
    with pytest.raises(RunError, match=r"model\.safetensors' is damaged"):
        copy.model()
    folder.model_file.write_bytes(bytes(whole))
    with pytest.raises(RunError, match=r"model\.safetensors' is damaged"):
        bundle(folder, "a card")


def test_one_flipped_bit_of_an_exported_file_is_named_and_not_published(tmp_path: Path) -> None:
    data = {"name": "color_mnist", "train_size": 40, "eval_size": 20}
    folder = run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    folder.write_export("onnx", b"a model of other programs")
    file = folder.export_file("onnx")
    for only in (True, False):
        assert "export/model.onnx" in [part.name for part in bundle(folder, "a card", only_exported=only)]
        for bit in range(8 * file.stat().st_size):
            with damaged(file, bit), pytest.raises(RunError, match=r"model\.onnx' is damaged"):
                bundle(folder, "a card", only_exported=only)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_others_compare_what_they_have_downloaded(tmp_path: Path) -> None:
    data = {"name": "color_mnist", "train_size": 40, "eval_size": 20}
    folder = run(settings("erm", data=data, model=TINY_MODEL, train=TRAIN), tmp_path / "run")
    folder.write_export("onnx", b"a model")
    downloaded = written(bundle(folder, "a card"), tmp_path / "downloaded")

    def compare() -> subprocess.CompletedProcess[str]:
        command = ["sha256sum", "-c", "--quiet", "--strict", "SHA256SUMS"]
        return subprocess.run(command, cwd=downloaded, capture_output=True, text=True, check=False)

    (downloaded / "README.md").write_text("a better card")
    assert compare().returncode == 0
    RunFolder(downloaded).compare(downloaded / "export" / "model.onnx")
    for file in sorted(downloaded.rglob("*")):
        if file.is_file() and file.name not in ("README.md", "SHA256SUMS"):
            with damaged(file, 9):
                assert file.relative_to(downloaded).as_posix() in compare().stdout


def test_settings_lose_their_places_and_nothing_else() -> None:
    config = {
        "preset": "/home/me/mine.yaml", "seed": 3,
        "data": {"name": "table", "root": "/home/me/x", "table": "/home/me/x/t.csv", "image_size": 64},
        "model": {"encoder_weights": "/home/me/w.safetensors", "hidden": 8},
        "train": {"epochs": 5},
    }  # fmt: skip
    shared = shareable_config(config)
    assert shared == {
        "preset": "mine.yaml", "seed": 3,
        "data": {"name": "table", "root": None, "table": None, "image_size": 64},
        "model": {"encoder_weights": "w.safetensors", "hidden": 8},
        "train": {"epochs": 5},
    }  # fmt: skip
    assert config["data"]["root"] == "/home/me/x", "the run's own settings stay as they are"
    assert shareable_config({"preset": "npz/erm", "model": {"encoder_weights": "hub"}}) == {
        "preset": "npz/erm", "model": {"encoder_weights": "hub"},
    }  # fmt: skip


def test_a_refit_names_runs_without_their_folders() -> None:
    result = {"preset": "npz/erm", "refit": {"run": "/home/me/runs/a", "before": [{"run": "/home/me/runs/a", "n": 1}]}}
    assert shareable_result(result) == {"preset": "npz/erm", "refit": {"run": "a", "before": [{"run": "a", "n": 1}]}}
    assert "/home" not in json.dumps(shareable_result(result))


def test_a_shared_result_does_not_tell_which_images_were_answered() -> None:
    refit = {"run": "a", "before": [{"run": "a"}]}
    assert shareable_result({"refit": {**refit, "answered": ["00ff"]}}) == {"refit": refit}


def test_a_run_that_is_not_finished_is_not_published(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({"preset": "x"})
    assert yaml.safe_load(folder.config_file.read_text()) == {"preset": "x"}
    with pytest.raises(RunError, match="is not finished"):
        bundle(folder, "a card")


@pytest.mark.parametrize("name", ["model", "me/", "/x", "me/x/y", "me/..", "me/a--b", "me/ x", "https://x/y", "me/x."])
def test_what_is_no_repository_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="give OWNER/NAME"):
        check_repository(name)


@pytest.mark.parametrize("name", ["me/x", "some-org/A_model.v2"])
def test_what_is_a_repository_is_taken(name: str) -> None:
    assert check_repository(name) == name
