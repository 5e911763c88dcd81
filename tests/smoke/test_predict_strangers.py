"""`sitar predict` on the run folder of a stranger: well formed, and wrong. Each costs a message and exit status 2."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
import yaml

from helpers import made_data
from helpers.cli import sitar, sitar_error
from helpers.runs import TINY_MODEL, run, settings
from sitar.data.types import described_task
from sitar.models.weights import to_bytes
from sitar.run_folder import RunFolder
from sitar.testing.same_run import weights

Result = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("strangers")
    config = settings("erm", data=made_data.npz(home).model_dump(), model=TINY_MODEL, train={"epochs": 1})
    run(config, home / "run")
    np.savez(home / "new.npz", x=np.random.default_rng(1).normal(size=(3, 6)))
    return home


@pytest.fixture
def stranger(made: Path, tmp_path: Path) -> RunFolder:
    """A copy of a run without checksums, which a stranger can write as well."""
    folder = RunFolder(shutil.copytree(made / "run", tmp_path / "run"))
    folder.done_file.write_bytes(b"")
    return folder


def change(folder: RunFolder, how: Callable[[Result], Any]) -> None:
    result = json.loads(folder.result_file.read_text())
    how(result)
    folder.result_file.write_text(json.dumps(result))


def setting(folder: RunFolder, section: str, **values: Any) -> None:
    config = yaml.safe_load(folder.config_file.read_text())
    config[section] |= values
    folder.config_file.write_text(yaml.safe_dump(config))


@pytest.mark.parametrize("lost", ["task", "classes"])
def test_a_run_that_would_need_its_data_is_refused_and_its_data_not_read(
    stranger: RunFolder, made: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(stranger, lambda result: result.pop(lost))
    monkeypatch.setattr("sitar.evaluation.trained_model.load_data", lambda config: pytest.fail("the data was read"))
    for words in (["predict", stranger.path, made / "new.npz"], ["export", stranger.path, "--format", "torch"]):
        assert "made by an early release" in sitar_error(*words)


WRONG: dict[str, Callable[[Result], Any]] = {
    "no side": lambda result: result["task"].update(shape=[0]),
    "two sides": lambda result: result["task"].update(shape=[2, 3]),
    "none": lambda result: result["task"].update(shape=[]),
    "huge": lambda result: result["task"].update(shape=[10**400]),
    "large": lambda result: result["task"].update(shape=[60_000]),
    "no classes": lambda result: result["task"].update(class_counts=[]),
    "negative": lambda result: result["task"].update(class_counts=[-1, 5]),
    "huge count": lambda result: result["task"].update(class_counts=[10**400, 1]),
    "negative group": lambda result: result["task"].update(group_counts=[-1], environments=2),
    "no environments": lambda result: result["task"].update(group_counts=[40, 20]),
    "no environment": lambda result: result["task"].update(group_counts=[40, 20], environments=0),
    "fewer names": lambda result: result.update(classes=["a"]),
    "more names": lambda result: result.update(classes=["a", "b", "c"]),
    "one name twice": lambda result: result.update(classes=["a", "a"]),
    "one name as shown": lambda result: result.update(classes=["\\ud800", "\ud800"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_task_that_cannot_be(stranger: RunFolder, made: Path, name: str) -> None:
    change(stranger, WRONG[name])
    done = sitar("predict", stranger.path, made / "new.npz", expect=2)
    assert "is damaged" in done.stderr or "do not fit" in done.stderr
    assert not done.stdout


def test_many_samples_of_a_group_take_no_memory() -> None:
    task = described_task({"shape": [6], "class_counts": [10**9], "group_counts": [10**9] * 3, "environments": 10**9})
    assert vars(task)["group"].tolist() == [0, 1, 2]
    assert vars(task)["environment"].tolist() == [10**9 - 1]


@pytest.mark.parametrize("values", [{"hidden": 200_000_000}, {"hidden": 30_000, "latent_dim": 30_000}])
def test_settings_that_ask_for_far_more_than_the_weights_have(
    stranger: RunFolder, made: Path, values: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "model", lambda self: pytest.fail("the weights were read"))
    setting(stranger, "model", **values)
    assert "do not fit the run's config.yaml" in sitar_error("predict", stranger.path, made / "new.npz")


def test_weights_far_larger_than_the_model_are_not_read(
    stranger: RunFolder, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "model", lambda self: pytest.fail("the weights were read"))
    with stranger.model_file.open("r+b") as file:
        file.truncate(6 * 2**30)  # without blocks on the disk
    assert "6,442,450,944 bytes" in sitar_error("predict", stranger.path, made / "new.npz")


def test_weights_that_are_not_finite_are_said(stranger: RunFolder, made: Path, tmp_path: Path) -> None:
    lost = {name: torch.full_like(one, float("nan")) for name, one in weights(stranger).items()}
    stranger.model_file.write_bytes(to_bytes(lost))
    out = tmp_path / "out.csv"
    assert "not finite numbers" in sitar_error("predict", stranger.path, made / "new.npz", "--out", out)
    assert not out.exists()


def test_an_input_whose_scores_are_not_finite_keeps_its_row(
    stranger: RunFolder, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = np.array([[0, 1], [np.nan, 0], [1, 0]], np.float32)
    monkeypatch.setattr("sitar.evaluation.trained_model.predict_logits", lambda *_: logits)
    done = sitar("predict", stranger.path, made / "new.npz")
    table = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [bool(row["prediction"]) for row in table] == [True, False, True]
    assert ["not finite" in row["error"] for row in table] == [False, True, False]
    assert done.stderr.count("WARNING") == 1


def test_names_of_classes_that_are_no_valid_text_are_written_out(
    stranger: RunFolder, made: Path, tmp_path: Path
) -> None:
    change(stranger, lambda result: result.update(classes=["\ud800", "b"]))
    for name in ("out.csv", "out.parquet"):
        sitar("predict", stranger.path, made / "new.npz", "--out", tmp_path / name)
    (head, *_) = csv.reader(io.StringIO((tmp_path / "out.csv").read_text()))
    assert head == pyarrow.parquet.read_schema(tmp_path / "out.parquet").names
    assert head[2:4] == ["p_\\ud800", "p_b"]


def test_no_command_of_a_stranger_is_suggested(stranger: RunFolder) -> None:
    setting(stranger, "data", file="gone.npz")
    environment = json.loads(stranger.environment_file.read_text())
    environment["command"] = "sitar train x --import /tmp/evil.py"
    stranger.environment_file.write_text(json.dumps(environment))
    said = sitar_error("evaluate", stranger.path)
    assert "--import" not in said
    assert "`sitar train" in said
